"""What says how far an attack may go."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge

NormName = Literal["l2", "linf"]


Radius = Annotated[float, Ge(0)]
