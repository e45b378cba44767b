"""Photographs stand upright, as their EXIF data say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from robustfeatures.data import folder
from robustfeatures.data.counting import count_folder
from robustfeatures.data.listing import Listing
from robustfeatures.data.settings import Data
from tests.data.test_folder import NOWHERE, digest, picture


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif"])
def test_photographs_stand_upright(tmp_path: Path, suffix: str) -> None:
    """A camera on its side stores the picture as its sensor saw it, and the orientation beside it."""
    upright = picture(3, "RGB", size=(4, 3)).resize((80, 60), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    # To be turned by 90 degrees clockwise.
    exif[ExifTags.Base.Orientation] = 6
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        stored = upright.transpose(Image.Transpose.ROTATE_90)
        stored.save(tmp_path / name / f"1{suffix}", exif=exif, quality=100)
        upright.save(tmp_path / name / "2.png")
    data = Data(source="folder", path=str(tmp_path), sha256=digest(tmp_path))
    images = folder.load(data, NOWHERE)["all"].images[np.arange(4)]
    expected = np.asarray(upright).transpose(2, 0, 1)
    assert np.abs(images.astype(int) - expected).mean() < 6
    assert folder.inspect_headers(tmp_path, [f"a/1{suffix}"])[f"a/1{suffix}"].width == 80
    # What is planned for.
    assert count_folder(tmp_path).shape == (3, 60, 80)
    # Published sets are used as they were published.
    files = [f"{name}/1{suffix}" for name in ("a", "b")]
    listing = Listing(tuple(files), np.arange(2), "")
    digest_of_two = folder.digest_images(data, {"test": listing})
    published = folder.read_images(replace(data, sha256=digest_of_two), {"test": listing}, ("a", "b"), convert=True)
    assert published["test"].images.shape[2:] == ((60, 80) if suffix == ".tif" else (80, 60))


@pytest.mark.parametrize("orientation", range(9))
def test_orientations_are_pillows(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    picture(1).save(tmp_path / "1.png", exif=exif)
    with Image.open(tmp_path / "1.png") as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    images = folder.ImageFiles(tmp_path, ("1.png",), "L", *expected.shape, None, upright=True)
    np.testing.assert_array_equal(images[np.arange(1)][0, 0], expected)


def test_exif_data_that_cannot_be_read_turn_nothing(tmp_path: Path) -> None:
    """A tag of a wrong type, beside an orientation: the image is read, and its size is the one that was checked."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    (tmp_path / "a").mkdir()
    picture(1).save(tmp_path / "a" / "1.jpg", exif=exif.tobytes()[:-6] + b"\xff" * 6)
    fact = folder.inspect_headers(tmp_path, ["a/1.jpg"])["a/1.jpg"]
    assert fact.problem is None
    images = folder.ImageFiles(tmp_path, ("a/1.jpg",), "L", fact.height, fact.width, None, upright=True)
    assert images[np.arange(1)].shape == (1, 1, fact.height, fact.width)
