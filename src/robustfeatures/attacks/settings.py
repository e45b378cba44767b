"""What says how far an attack may go."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from annotated_types import Ge

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict

NormName = Literal["l2", "linf"]
Radius = Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class PGDSettings(Strict):
    """Projected gradient descent in a ball of radius `eps`; radii and steps in units of [0, 1] pixels."""

    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt

    def arguments(self) -> dict[str, Any]:
        """These four alone, by the names by which `robustfeatures.attacks.pgd` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(PGDSettings)}
