"""The settings that all PGD attacks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from annotated_types import Gt
from pydantic import AfterValidator, ValidationInfo

from robustfeatures.engine.settings import NonNegativeFloat, PositiveFloat, PositiveInt, Strict

T = TypeVar("T", bound=float | Sequence[float])

NormName = Literal["l2", "linf"]
# What text calls them.
NORM_NAMES: Mapping[NormName, str] = {"l2": "L2", "linf": "Linf"}
Radius = NonNegativeFloat


def check_linf(eps: T) -> T:
    """Return the Linf radius or radii, each below 1.

    Raises:
        ValueError: one is 1 or more, as radii of 0 to 255 are.
    """
    if max(eps) >= 1 if isinstance(eps, Sequence) else eps >= 1:
        raise ValueError("pixels lie in [0, 1], so that a Linf radius is below 1: 8/255 is 0.0314")
    return eps


def check_radii(radii: Mapping[NormName, T]) -> Mapping[NormName, T]:
    """Return the radii per norm after `check_linf`."""
    if "linf" in radii:
        check_linf(radii["linf"])
    return radii


def check_in_norm(eps: T, info: ValidationInfo) -> T:
    """Return the radius or radii of a class with the field `norm`, after `check_linf`: a validator of `eps`."""
    return check_linf(eps) if info.data.get("norm") == "linf" else eps


LinfRadius = Annotated[float, Gt(0), AfterValidator(check_linf)]


@dataclass(frozen=True, kw_only=True)
class PGDSettings(Strict):
    """Projected gradient descent in a ball of radius `eps`; `eps` and `step_size` have the unit of pixels in [0, 1]."""

    norm: NormName
    """The norm of the ball and of the steps."""
    eps: Annotated[Radius, AfterValidator(check_in_norm)]
    """The radius of the ball, in pixels of [0, 1]; an Linf radius is below 1."""
    step_size: PositiveFloat
    """The length of one step, in the unit of `eps`."""
    steps: PositiveInt
    """The number of steps."""
