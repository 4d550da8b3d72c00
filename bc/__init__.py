"""Imitation learning: demonstrations -> dataset (HDF5) -> pretraining by behavioural cloning.

``demonstrations`` plays replays back and converts them to one action per decision.
``dataset`` records the observation before each decision.
``train`` fits a policy, given as an argument, to the actions.
``analysis`` measures a folder of demonstrations; ``demonstration_report`` writes the page.
"""
