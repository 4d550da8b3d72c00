"""Networks, the policy, its checkpoints, and the way from cloned to trained weights."""

from rl.policy.policy import NppPolicy, build_policy
