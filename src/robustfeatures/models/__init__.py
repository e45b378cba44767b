"""Networks: each normalises inside and gives its penultimate representation."""

from robustfeatures.models.registry import create

__all__ = ["create"]
