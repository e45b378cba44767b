"""What all parameters have in common."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict


class Strict:
    """No unknown fields, no conversions between types, no NaN."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
