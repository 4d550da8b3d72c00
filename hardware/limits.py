"""How large a run may get: the most of each size that fits into memory, the others as planned."""

from collections.abc import Callable

from hardware.memory import MemoryNeeds, UpdateMemory, total
from hardware.plan import Plan
from hardware.sizes import Sizes

MOST = 1 << 20  # environments, or decisions of a rollout; nobody has asked for more


def largest(plan: Plan, update: UpdateMemory) -> Sizes:
    """The most environments, the longest rollout and the largest minibatch that fit, each with the rest of the plan as it is.

    update: what the plan was made with.  Environments and rollout are doubled as often as fits, so that the minibatch still
    divides an update; the largest minibatch is the largest divisor of the planned update.
    """
    needs = MemoryNeeds(plan.observations, update, plan.gpus, plan.stacking, carried_bytes=plan.carried_bytes)
    planned = Sizes(plan.num_envs, plan.rollout_length, plan.minibatch_size)

    def fits(sizes: Sizes) -> bool:
        rows = needs.rows(*sizes)
        return total(rows, "host") <= plan.host_budget and (
            not plan.gpus or total(rows, "device") <= plan.device_budget
        )

    def with_minibatch(size: int) -> bool:
        return size % needs.processes == 0 and fits(planned._replace(minibatch_size=size))

    batch = planned.num_envs * planned.rollout_length
    return Sizes(
        _doubled(planned.num_envs, lambda size: fits(planned._replace(num_envs=size))),
        _doubled(planned.rollout_length, lambda size: fits(planned._replace(rollout_length=size))),
        max(size for size in range(planned.minibatch_size, batch + 1) if batch % size == 0 and with_minibatch(size)),
    )


def _doubled(size: int, fits: Callable[[int], bool]) -> int:
    """``size`` times the largest power of two with which it fits."""
    while 2 * size <= MOST and fits(2 * size):
        size *= 2
    return size
