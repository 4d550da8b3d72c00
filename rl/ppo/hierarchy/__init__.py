"""Hierarchical PPO: a high level chooses subtasks, a low level acts on them, and both learn together.

``rl.policy.commander`` is the network's part, ``rl.policy.commands`` has the rules by which subtasks end, and
``rl.policy.player`` plays by them.  Here are returns of choices that last (``returns``), what the high level adds to the loss
(``losses``), the training (``ppo``), and what is checked of it (``audit``).
"""
