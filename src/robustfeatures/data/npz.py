"""Images of the user's own in one `.npz` file: `images` uint8 (N, C, H, W), `labels` integer (N,), `class_names`."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustfeatures.data.raw import RawData
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Data


def load(parameters: Data) -> RawData:
    """The arrays of `parameters.file`, whose SHA-256 must be the one of the recipe.

    Raises:
        UserError: the file is missing, damaged, another than the recipe's, or lacks an array.
    """
    if parameters.file is None or parameters.sha256 is None:
        raise UserError("data.file: the source 'npz' needs a file, and data.sha256 its SHA-256")
    path = Path(parameters.file)
    if not path.is_file():
        raise UserError(f"data.file: {path} does not exist")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != parameters.sha256:
        raise UserError(f"data.sha256: {path} has the SHA-256 {found}, not {parameters.sha256}; is it truncated?")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
            names = arrays["class_names"] if "class_names" in arrays else np.arange(int(labels.max()) + 1)
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise UserError(f"data.file: {path} is not a readable .npz file: {error}") from error
    except KeyError as error:
        raise UserError(f"data.file: {path} has no array {error.args[0].split()[0]!r}") from error
    if labels.dtype.kind not in "iu":
        raise UserError(f"data.file: {path}: labels: the type is {labels.dtype}, not an integer")
    return RawData(images, labels.astype(np.int64), tuple(str(name) for name in names))
