"""The settings that all PGD attacks share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from annotated_types import Ge

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict

NormName = Literal["l2", "linf"]
Radius = Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class PGDSettings(Strict):
    """Projected gradient descent in a ball of radius `eps`; `eps` and `step_size` have the unit of pixels in [0, 1]."""

    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt

    def arguments(self) -> dict[str, Any]:
        """Return these four fields, not those of subclasses, as keyword arguments of `robustfeatures.attacks.pgd`."""
        return {field.name: getattr(self, field.name) for field in fields(PGDSettings)}
