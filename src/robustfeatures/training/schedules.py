"""Learning-rate schedules: functions from step to learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Schedule = Callable[[int], float]

# One-cycle (Smith, 2018): the share of the steps in which the rate rises.
WARM_UP = 0.25
# Step: the factor of the rate at each milestone (two-pathways-2021, Appendix C, Table 3).
DROP = 0.1


def constant(learning_rate: float) -> Schedule:
    """Return the same rate at every step."""
    return lambda step: learning_rate


def one_cycle(learning_rate: float, steps: int) -> Schedule:
    """Raise the rate linearly from 0 to `learning_rate` in the first quarter of the `steps`, then lower it to 0."""
    peak = max(1.0, WARM_UP * steps)
    return lambda step: learning_rate * min((step + 1) / peak, (steps - step) / max(1.0, steps - peak), 1.0)


def step_drops(learning_rate: float, milestones: Sequence[int]) -> Schedule:
    """Multiply the rate by 0.1 at each of the `milestones`, in steps."""
    return lambda step: learning_rate * DROP ** sum(step >= milestone for milestone in milestones)
