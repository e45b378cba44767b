"""Folders of images with a folder for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def images(folder: Path, classes: int, each: int, shape: tuple[int, ...]) -> Path:
    random = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"class {label}" / f"{number}.png")
    return folder
