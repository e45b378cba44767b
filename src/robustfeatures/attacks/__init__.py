"""Attacks on the pixels of an image, and inversion of a representation."""

from robustfeatures.attacks.inversion import invert
from robustfeatures.attacks.pgd import pgd

__all__ = ["invert", "pgd"]
