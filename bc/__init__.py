"""Imitation learning: demonstrations -> dataset (HDF5) -> pretraining by behavioural cloning.

``demonstrations`` plays replays back and converts them to one action per decision.
``dataset`` records the observation before each decision.
``train`` trains a policy to predict the actions.
``analysis`` computes statistics of demonstrations.
"""
