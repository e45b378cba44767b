"""Learning rates as pure functions of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Schedule = Callable[[int], float]

# One-cycle: the share of the steps spent on the way up (Smith, 2018).
WARM_UP = 0.25
# Step: what the rate is multiplied by at each milestone (two-pathways-2021, Appendix C, Table 3).
DROP = 0.1


def constant(learning_rate: float) -> Schedule:
    """The same rate at every step."""
    return lambda step: learning_rate


def one_cycle(learning_rate: float, steps: int) -> Schedule:
    """Up in a straight line from 0 to `learning_rate` over the first quarter of the `steps`, then down to 0."""
    peak = max(1.0, WARM_UP * steps)
    return lambda step: learning_rate * min((step + 1) / peak, (steps - step) / max(1.0, steps - peak), 1.0)


def step_drops(learning_rate: float, milestones: Sequence[int]) -> Schedule:
    """A tenth of the rate from each of the `milestones` (in steps) on."""
    return lambda step: learning_rate * DROP ** sum(step >= milestone for milestone in milestones)
