"""Networks, the policy, its checkpoints, and the way from cloned to trained weights."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl.policy.policy import NppPolicy, build_policy

__all__ = ["NppPolicy", "build_policy"]


def __getattr__(name: str) -> object:
    """The policy, imported when it is asked for: the table of architectures, which lies here too, needs no torch.

    Archives of Stable-Baselines3 name the class rl.policy.NppPolicy: it must be found here.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rl.policy import policy

    return getattr(policy, name)
