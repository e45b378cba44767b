"""Networks, which normalise their images and give their penultimate representation."""

from robustfeatures.models.creation import create

__all__ = ["create"]
