"""The settings of a network."""

from __future__ import annotations

from dataclasses import dataclass

from robustfeatures.engine.settings import PositiveInt, Strict


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict):
    """A registered network; `width` is the number of filters of its first stage, or of hidden units."""

    name: str
    width: PositiveInt | None = None
