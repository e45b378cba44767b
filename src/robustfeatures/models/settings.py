"""What says which network is meant."""

from __future__ import annotations

from dataclasses import dataclass

from robustfeatures.engine.settings import PositiveInt, Strict


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict):
    """A registered network; `width` is the number of filters of its first stage."""

    name: str
    width: PositiveInt | None = None
