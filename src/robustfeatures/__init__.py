"""Robust and non-robust features of networks: isolate them, measure them, compare with the published numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustfeatures.tools.evaluating import evaluate
    from robustfeatures.tools.opening import load_model, open_dataset

__version__ = "0.1.0"

# Public names and their modules. They are imported on first use, because torch and zarr take a second to import.
_PUBLIC = {
    "evaluate": "robustfeatures.tools.evaluating",
    "load_model": "robustfeatures.tools.opening",
    "open_dataset": "robustfeatures.tools.opening",
}
__all__ = ["evaluate", "load_model", "open_dataset"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'robustfeatures' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
