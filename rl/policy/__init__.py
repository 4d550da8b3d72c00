"""Networks, the policy, its checkpoints, and the way from cloned to trained weights."""

# Archives of Stable-Baselines3 name the class rl.policy.NppPolicy: it must be found here.
from rl.policy.policy import NppPolicy, build_policy
