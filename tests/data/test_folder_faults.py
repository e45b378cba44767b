"""Faults of image folders and of published sets; each must raise an error."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustfeatures.data import cinic10, folder, restricted_imagenet
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.tools.fetching import fetch
from tests.data.test_folder import NOWHERE, cinic, everything, load, parameters, picture, pool_of, write
from tests.data.test_torchvision_sets import publish
from tests.tools.test_fetching import study


def synset_folders(root: Path) -> Data:
    """1000 class folders per split, without images."""
    for split in ("train", "val"):
        for number in range(1000):
            (root / split / f"n{number:08d}").mkdir(parents=True)
    return Data(source="restricted-imagenet", path=str(root), size=8)


@pytest.mark.parametrize(
    ("split", "old", "new", "expected"),
    [
        ("train", "n00000009", "n9", r"train has a class folder 'n9', not a synset such as 'n02084071'$"),
        ("val", "n00000000", "0", r"val has a class folder '0', not a synset"),
        ("val", "n00000009", "n00000009_", r"val has a class folder 'n00000009_', not a synset"),
        ("val", "n00000009", "n00001000", r"the class folder 'n00000009' is in only one of train and val$"),
    ],
)
def test_classes_that_would_be_counted_wrongly(tmp_path: Path, split: str, old: str, new: str, expected: str) -> None:
    """Classes are indices into the sorted synsets, so one wrong name would shift all of them."""
    wanted = synset_folders(tmp_path)
    (tmp_path / split / old).rename(tmp_path / split / new)
    with pytest.raises(UserError, match=rf"^data\.path: .*{expected}"):
        restricted_imagenet.compute_digest(wanted)


def test_fetching_tells_what_a_published_set_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = cinic(tmp_path / "raw" / "cinic10")
    path = study(tmp_path, source="cinic10-cifar")
    own = cinic10.compute_digest(parameters(place, source="cinic10-cifar"))
    with pytest.raises(UserError) as refusal:
        list(fetch(path, tmp_path / "raw"))
    assert str(refusal.value) == (
        f"{path}: data.path: {place}: train has 10 images, not the published 20000; mend it, or, to use just these "
        f"images, give data.sha256: {own}"
    )
    with pytest.raises(UserError, match=r"20000; mend it, or give data\.sha256, which `robustfeatures fetch` tells$"):
        cinic10.load(Data(source="cinic10-cifar", path=str(place)), NOWHERE)
    study(tmp_path, source="cinic10-cifar", sha256=own)
    assert list(fetch(path, tmp_path / "raw")) == [f"cinic10-cifar: {place}: SHA-256 {own} as in the study"]
    publish(monkeypatch, "cinic10-cifar", train=10, validation=10, test=10)
    study(tmp_path, source="cinic10-cifar")
    assert list(fetch(path, tmp_path / "raw")) == [f"cinic10-cifar: {place}: complete, SHA-256 {own}"]


def test_restricted_imagenet_with_too_few_images(tmp_path: Path) -> None:
    wanted = synset_folders(tmp_path)
    for first, last in restricted_imagenet.RANGES.values():
        for number in range(first, last + 1):
            write(tmp_path, {f"{split}/n{number:08d}/0.JPEG": b"not read" for split in ("train", "val")})
    own = restricted_imagenet.compute_digest(replace(wanted, sha256=""))
    message = r"train/n00000151 has 1 images, ImageNet's has 732 to 1300; mend it, or"
    with pytest.raises(UserError, match=rf"{message}, to use just these images, give data\.sha256: {own}$"):
        restricted_imagenet.compute_digest(wanted)
    with pytest.raises(UserError, match=rf"{message} give data\.sha256, which `robustfeatures fetch` tells$"):
        restricted_imagenet.load(wanted, NOWHERE)


@pytest.mark.parametrize("place", ["cat/9.png", "owl", "train/cat/9.PNG", "train/owl", "val"])
def test_a_link_to_nothing_is_no_less_an_image(tmp_path: Path, place: str) -> None:
    """A link to a disk that is not mounted must not make the data set smaller."""
    split = "train/" if place.startswith(("train", "val")) else ""
    write(tmp_path, {f"{split}{name}": image for name, image in pool_of().items()})
    link = tmp_path / place
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=rf"^data\.path: {link} is a link to nothing$"):
        folder.compute_digest(Data(source="folder", path=str(tmp_path)))
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(UserError, match=rf"^data\.path: {link} is a link to nothing$"):
        folder.compute_digest(Data(source="folder", path=str(tmp_path)))


def test_links_to_images_and_folders_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "there", pool_of())
    (tmp_path / "here" / "cat").mkdir(parents=True)
    (tmp_path / "here" / "dog").symlink_to(tmp_path / "there" / "dog")
    (tmp_path / "here" / "cat" / "0.png").symlink_to(tmp_path / "there" / "cat" / "0.png")
    (tmp_path / "here" / "cat" / "notes.txt").symlink_to(tmp_path / "nowhere")
    data = Data(source="folder", path=str(tmp_path / "here"))
    pool = folder.load(replace(data, sha256=folder.compute_digest(data)), NOWHERE)["all"]
    assert pool.names == ("cat/0.png", "dog/0.png", "dog/1.png")


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize(
    ("mode", "transparency", "seen"),
    [("1", 0, "LA"), ("L", 7, "LA"), ("P", 0, "PA"), ("P", b"\x00\x80", "PA"), ("RGB", (1, 2, 3), "RGBA")],
)
def test_transparent_colours_are_not_dropped_in_silence(
    tmp_path: Path, mode: str, transparency: object, seen: str
) -> None:
    image = encode(picture(0, "RGB", (32, 32)).convert(mode), "PNG", transparency=transparency)
    write(tmp_path, {"cat/0.png": image})
    with Image.open(tmp_path / "cat/0.png") as opened:
        assert opened.mode == mode
    with pytest.raises(UserError, match=rf"^data\.path: cat/0\.png: the mode is {seen}; .* without alpha$"):
        load(tmp_path)
    # Sources that are known to have such images still accept them.
    place = cinic(tmp_path / "cinic10")
    name = "train/cat/n02691156_7.png"
    write(place, {name: image})
    train = cinic10.load(parameters(place, source="cinic10"), NOWHERE)["train"]
    assert train.names is not None
    with Image.open(place / name) as opened:
        expected = np.asarray(opened.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(everything(train)[train.names.index(name.removeprefix("train/"))], expected)


@pytest.mark.parametrize(("kind", "suffix"), [("TIFF", "tif"), ("WEBP", "webp"), ("PNG", "png")])
def test_only_the_first_of_several_images_in_a_file_would_be_read(tmp_path: Path, kind: str, suffix: str) -> None:
    others = [picture(number, "RGB") for number in (1, 2)]
    several = encode(picture(0, "RGB"), kind, save_all=True, append_images=others)
    write(tmp_path, {"a/0.png": picture(0, "RGB"), f"a/1.{suffix}": several})
    with pytest.raises(UserError, match=rf"1 of 2 images cannot be read, first a/1\.{suffix} \(holds 3 images\); "):
        load(tmp_path)
    assert load(tmp_path, skip_unreadable=True)["all"].names == ("a/0.png",)


def test_a_photograph_with_a_telephones_other_versions_is_one_image(tmp_path: Path) -> None:
    several = encode(picture(0, "RGB"), "MPO", save_all=True, append_images=[picture(1, "RGB")])
    write(tmp_path, {"a/0.jpg": several})
    assert load(tmp_path)["all"].images.shape == (1, 3, 4, 5)


def test_a_file_that_is_no_image_is_told_in_words(tmp_path: Path) -> None:
    write(tmp_path, {**pool_of(), "cat/0.png": b"<html>no such image</html>"})
    with pytest.raises(UserError, match=r"0\.png \(no image that Pillow reads as PNG, JPEG, WEBP, BMP or TIFF\); mend"):
        load(tmp_path)


def test_a_class_that_no_study_could_name(tmp_path: Path) -> None:
    write(tmp_path, {f"{'x' * 201}/0.png": picture(0), "y/0.png": picture(1)})
    with pytest.raises(UserError, match=rf"^data\.path: {tmp_path}: class_names: the name of class 0 begins 'x+' and"):
        prepare_splits(parameters(tmp_path, test=0.5), NOWHERE)
