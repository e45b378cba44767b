"""Attacks on the pixels of an image, and inversion of a representation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustfeatures.attacks.own_networks import attack_representation, invert, pgd

# Imported on first use, because planning reads the settings in this package without torch.
_PUBLIC = dict.fromkeys(("attack_representation", "invert", "pgd"), "robustfeatures.attacks.own_networks")
__all__ = ["attack_representation", "invert", "pgd"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
