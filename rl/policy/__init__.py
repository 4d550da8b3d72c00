"""Networks, policy, checkpoints and weight transfer."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl.policy.policy import NppPolicy, build_policy

__all__ = ["NppPolicy", "build_policy"]


def __getattr__(name: str) -> object:
    """Import the policy at first use, so that the table of architectures can be imported without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rl.policy import policy

    return getattr(policy, name)
