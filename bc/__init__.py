"""Imitation: demonstrations -> dataset (HDF5) -> pretraining by behavioural cloning.

``demonstrations`` reads replays, plays them back and puts them on the decision grid; ``dataset`` records what an agent
would have observed before each decision; ``train`` fits a policy, which it receives as an argument, to the decisions.
``analysis`` measures a folder of demonstrations, and ``report`` shows it.
"""
