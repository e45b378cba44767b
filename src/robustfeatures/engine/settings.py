"""Shared types of the settings in study files.

Fields are validated when a study is read. Every field that is on is part of the digest of its recipe.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt
from pydantic import ConfigDict


class Strict:
    """No unknown fields, no conversions between types, no NaN."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


Seed = Annotated[int, Ge(0)]
Fraction = Annotated[float, Gt(0), Lt(1)]
PositiveInt = Annotated[int, Gt(0)]
# The squares of larger numbers, summed over the pixels of an image, may not fit into float32.
LARGE = 1e9
NonNegativeFloat = Annotated[float, Ge(0), Lt(LARGE)]
PositiveFloat = Annotated[float, Gt(0), Lt(LARGE)]
Precision = Literal["float32", "bfloat16"]
