"""What a network learned: robust and non-robust features, isolated, measured and set beside the published numbers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public names and where they live; imported on first use, because torch and zarr take a second.
_PUBLIC = {
    "open_dataset": "robustfeatures.tools.opening",
    "load_model": "robustfeatures.tools.opening",
}
__all__ = ["load_model", "open_dataset"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'robustfeatures' has no attribute {name!r}")
