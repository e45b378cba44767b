"""Robust and non-robust features of networks: isolate them, measure them, compare with the published numbers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public names and their modules. They are imported on first use, because torch and zarr take a second to import.
_PUBLIC = {
    "open_dataset": "robustfeatures.tools.opening",
    "load_model": "robustfeatures.tools.opening",
}
__all__ = ["load_model", "open_dataset"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'robustfeatures' has no attribute {name!r}")
