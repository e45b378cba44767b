"""Networks: each normalises inside and gives its penultimate representation."""

from robustfeatures.models.creation import create

__all__ = ["create"]
