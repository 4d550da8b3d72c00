"""Largest sizes of a run that fit into memory, each with the other sizes as planned."""

from collections.abc import Callable

from hardware.memory import MemoryNeeds, UpdateMemory, total
from hardware.plan import Plan
from hardware.sizes import Sizes

MOST = 1 << 20  # upper limit of the search, for environments and for decisions of a rollout


def largest(plan: Plan, update: UpdateMemory) -> Sizes:
    """Return the largest number of environments, rollout length and minibatch that fit, the other sizes unchanged.

    update: as used by the plan.
    Environments and rollout are doubled while they fit, so that the minibatch still divides the update.
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
    """Return ``size`` times the largest power of two that fits."""
    while 2 * size <= MOST and fits(2 * size):
        size *= 2
    return size
