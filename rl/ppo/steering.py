"""A learning rate that is steered by how far updates move the policy (``--desired-kl``)."""

STEP = 1.5  # factor by which the rate is lowered or raised
LIMITS = (1e-5, 1e-2)  # of the rate


def steered(rate: float, kl: float, desired: float) -> float:
    """The next update's learning rate, after one at ``rate`` that moved the policy by ``kl`` where ``desired`` was wanted.

    Lowered where that was more than twice as far, raised where it was less than half as far, within LIMITS.
    Source: Schulman et al. 2017, section 4 (the same rule for a penalty's weight); Rudin et al. 2022 (for the rate).
    """
    if kl > 2 * desired:
        rate /= STEP
    elif kl < desired / 2:
        rate *= STEP
    return min(max(rate, LIMITS[0]), LIMITS[1])
