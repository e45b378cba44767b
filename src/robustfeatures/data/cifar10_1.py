"""CIFAR-10.1 (Recht et al., 2018): a second test set for CIFAR-10 of about 2000 images, in the versions v4 and v6."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.data.download import Download, check_counts
from robustfeatures.data.raw import RawData

if TYPE_CHECKING:
    from robustfeatures.data.settings import Data

ADDRESS = "https://raw.githubusercontent.com/modestyachts/CIFAR-10.1/master/datasets/"

# The authors give no checksums. TensorFlow Datasets recorded these SHA-256 for the same files
# (tensorflow_datasets/url_checksums/cifar10_1.txt in github.com/tensorflow/datasets).
SHA256 = {
    "cifar10.1_v4_data.npy": "5aaedc268df8f4cffca2ac0cf9e608ae1897a8cddb630c7a850a2ea8f6558e75",
    "cifar10.1_v4_labels.npy": "1f9544300ded199539b6662364ce7fe6c2e1ea9f87408f06db4b1a6184cffb18",
    "cifar10.1_v6_data.npy": "2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
    "cifar10.1_v6_labels.npy": "ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
}

# The classes of CIFAR-10; the files do not name them.
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def downloads(parameters: Data, raw: Path) -> tuple[Download, ...]:
    """The images and the labels of the version that `parameters.source` names."""
    version = parameters.source.replace("-", "_")
    names = (f"{version}_data.npy", f"{version}_labels.npy")
    return tuple(Download((ADDRESS + name,), raw / "cifar10.1" / name, sha256=SHA256[name]) for name in names)


def load(parameters: Data, raw: Path) -> dict[str, RawData]:
    """One split, test: (2021, 3, 32, 32) for v4, (2000, 3, 32, 32) for v6, uint8.

    Raises:
        UserError: a file cannot be fetched, or does not hold the published images.
    """
    files = downloads(parameters, raw)
    for file in files:
        file.fetch()
    pixels, labels = (np.load(file.path, allow_pickle=False) for file in files)
    images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    splits = {"test": RawData(images, labels.astype(np.int64), CLASSES)}
    check_counts(splits, parameters.source)
    return splits
