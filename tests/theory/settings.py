"""A setting of patch data that meets the assumptions and trains in a second."""

from __future__ import annotations

from robustfeatures.theory.settings import PatchConstants

SMALL = PatchConstants(
    classes=3,
    dimension=40,
    patches=40,
    robust_patches=1,
    alpha=1.0,
    beta=0.4,
    spread=0.05,
    noise=0.01,
    width=6,
    exponent=3,
    threshold=1.0,
    samples=30,
    learning_rate=0.7,
    ascent_rate=1.0,
    radius=0.6,
)
