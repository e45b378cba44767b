"""Image folders of any kind, CINIC-10 and Restricted ImageNet: which images are read, their order, and errors."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustfeatures.data import cinic10, folder, restricted_imagenet
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.raw import RawData
from robustfeatures.data.settings import Data
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.recipe import Recipe
from tests.conftest import REPOSITORY

REAL = REPOSITORY.parent / "shared" / "data"
NOWHERE = Path("unused")


def picture(seed: int, mode: str = "L", size: tuple[int, int] = (5, 4)) -> Image.Image:
    """Noise, (width, height) pixels."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
    return Image.fromarray(pixels, mode=mode)


def write(root: Path, pictures: Mapping[str, Image.Image | bytes]) -> Path:
    for name, content in pictures.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content.save(path)
    return root


def digest(root: Path, suffixes: tuple[str, ...] = (".png", ".JPEG", ".jpg", ".bmp", ".webp", ".tif")) -> str:
    """The digest of a folder as the documentation describes it."""
    files = [path for path in root.rglob("*") if path.suffix in suffixes]
    lines = [f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def parameters(root: Path, *, source: str = "folder", **changes: object) -> Data:
    return replace(Data(source=source, path=str(root), sha256=digest(root)), **changes)


def load(root: Path, **changes: object) -> dict[str, RawData]:
    return folder.load(parameters(root, **changes), NOWHERE)


def everything(raw: RawData) -> np.ndarray:
    return raw.images[np.arange(len(raw.labels))]


def pool_of(count: int = 2, mode: str = "L") -> dict[str, Image.Image | bytes]:
    return {f"{name}/{n}.png": picture(10 * k + n, mode) for k, name in enumerate(("cat", "dog")) for n in range(count)}


def test_a_pool_is_sorted_and_its_pixels_are_those_of_the_files(tmp_path: Path) -> None:
    pictures = {"b/2.png": picture(1), "b/10.png": picture(2), "a/x.tif": picture(3), "a/w.BMP": picture(4)}
    write(tmp_path, {**pictures, "a/notes.txt": b"no image", "a/._x.png": b"no image"})
    wanted = parameters(tmp_path)
    wanted = replace(wanted, sha256=folder.compute_digest(wanted))
    raw = folder.load(wanted, NOWHERE)
    assert list(raw) == ["all"]
    pool = raw["all"]
    pool.check("folder")
    assert pool.names == ("a/w.BMP", "a/x.tif", "b/10.png", "b/2.png")
    assert pool.class_names == ("a", "b")
    assert pool.labels.tolist() == [0, 0, 1, 1]
    assert pool.images.shape == (4, 1, 4, 5)
    for row, name in enumerate(pool.names):
        np.testing.assert_array_equal(pool.images[np.array([row])][0, 0], np.asarray(pictures[name]))


@pytest.mark.parametrize("suffix", ["png", "webp", "bmp", "tif", "jpg"])
def test_colour_formats(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, {f"a/0.{suffix}": picture(0, "RGB"), f"b/0.{suffix}": picture(1, "RGB")})
    pool = load(tmp_path)["all"]
    with Image.open(tmp_path / f"b/0.{suffix}") as image:
        np.testing.assert_array_equal(pool.images[np.array([1])][0].transpose(1, 2, 0), np.asarray(image))


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_splits_of_a_folder(tmp_path: Path, validation: str) -> None:
    splits = ("train", validation, "test")
    write(tmp_path, {f"{split}/{name}": image for split in splits for name, image in pool_of(3).items()})
    raw = load(tmp_path)
    assert list(raw) == ["train", "validation", "test"]
    assert raw["validation"].names == ("cat/0.png", "cat/1.png", "cat/2.png", "dog/0.png", "dog/1.png", "dog/2.png")
    np.testing.assert_array_equal(everything(raw["test"])[4, 0], np.asarray(picture(11)))


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write(tmp_path, {"train/0.png": picture(0), "plane/0.png": picture(1)})
    assert load(tmp_path)["all"].class_names == ("plane", "train")


def test_the_digest_is_the_documented_one_and_covers_names_and_bytes(tmp_path: Path) -> None:
    write(tmp_path, pool_of())
    wanted = parameters(tmp_path)
    assert folder.compute_digest(wanted) == digest(tmp_path)
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / "00.png")
    with pytest.raises(UserError, match=r"^data\.sha256: .* has the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}"):
        folder.load(wanted, NOWHERE)
    (tmp_path / "cat" / "00.png").rename(tmp_path / "cat" / "0.png")
    picture(99).save(tmp_path / "cat" / "0.png")
    with pytest.raises(UserError, match=r"^data\.sha256: "):
        folder.load(wanted, NOWHERE)
    with pytest.raises(UserError, match=rf"^data\.sha256: .* has the SHA-256 {digest(tmp_path)}; give it"):
        folder.load(replace(wanted, sha256=None), NOWHERE)


@pytest.mark.parametrize("size", [3, 4, 9])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_resizing_is_that_of_torchvision(tmp_path: Path, size: int, mode: str) -> None:
    transforms = import_torchvision().transforms
    shapes = ((7, 4), (4, 13), (6, 6), (11, 10))
    pictures = {f"a/{number}.png": picture(number, mode, shape) for number, shape in enumerate(shapes)}
    write(tmp_path, pictures)
    images = everything(load(tmp_path, size=size)["all"])
    assert images.shape == (4, 1 if mode == "L" else 3, size, size)
    reference = transforms.Compose([transforms.Resize(size), transforms.CenterCrop(size)])
    for image, original in zip(images, pictures.values(), strict=True):
        expected = np.asarray(reference(original)).reshape(size, size, -1).transpose(2, 0, 1)
        np.testing.assert_array_equal(image, expected)


def test_only_the_images_asked_for_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, pool_of(4))
    pool = load(tmp_path)["all"]
    for name in ("cat/1.png", "cat/2.png", "dog/0.png"):
        (tmp_path / name).unlink()
    images = pool.images[np.array([7, 0, 3])]
    for image, seed in zip(images, (13, 0, 3), strict=True):
        np.testing.assert_array_equal(image[0], np.asarray(picture(seed)))


TRUNCATED = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dog/0.png": TRUNCATED, "dog/1.png": b""}, r"2 of 4 images cannot be read, first dog/0\.png \(.*skip_unread"),
        ({"cat/1.png": picture(0, "RGB")}, r"cat/0\.png: grey image where colour is expected, as in cat/1\.png"),
        ({"dog/1.png": picture(0, size=(6, 4))}, r"dog/1\.png has 6x4 pixels, cat/0\.png has 5x4; set data\.size"),
        ({"dog/1.png": Image.fromarray(np.zeros((4, 5), np.uint16))}, r"dog/1\.png: the mode is I;16 .*8 bits"),
        ({"cat/0.png": picture(0, "RGBA")}, r"cat/0\.png: the mode is RGBA; .* without alpha"),
        ({"owl/read.me": b""}, r"the class folder .*/owl holds no image"),
        ({"train/cat/0.png": picture(0)}, r".* holds 'cat' beside its splits"),
    ],
)
def test_what_a_folder_refuses(tmp_path: Path, changes: dict[str, Image.Image | bytes], expected: str) -> None:
    write(tmp_path, {**pool_of(), **changes})
    with pytest.raises(UserError, match=f"^data.path: {expected}") as refusal:
        load(tmp_path)
    assert "\n" not in str(refusal.value)


def test_sixteen_bits_a_channel_are_not_cut_in_silence(tmp_path: Path) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)
    rows = (b"\0" + b"\x12\x34" * 15) * 4
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    write(tmp_path, {"a/0.png": png})
    with Image.open(tmp_path / "a/0.png") as image:
        assert image.mode == "RGB"
    with pytest.raises(UserError, match=r"a/0\.png: the mode is RGB with 16 bits"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("pictures", "expected"),
    [
        ({}, "holds no class folders"),
        ({"0.png": picture(0)}, "holds no class folders"),
        ({"train/a/0.png": picture(0), "train/b/0.png": picture(1), "test/a/0.png": picture(2)}, "b is missing"),
        ({"train/a/0.png": picture(0), "test/a/0.png": picture(1), "test/b/0.png": picture(2)}, "folder 'b' that 'tr"),
        ({"train/a/0.png": picture(0), "val/a/0.png": picture(1), "valid/a/0.png": picture(2)}, "both 'val' and 'val"),
    ],
)
def test_layouts_that_do_not_fit(tmp_path: Path, pictures: dict[str, Image.Image], expected: str) -> None:
    write(tmp_path, pictures)
    with pytest.raises(UserError, match=rf"^data\.path: .*{expected}"):
        load(tmp_path)


def test_a_path_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^data\.path: the source 'folder' needs a path"):
        folder.load(Data(source="folder"), NOWHERE)
    with pytest.raises(UserError, match=r"^data\.path: .*/none does not exist$"):
        folder.load(Data(source="folder", path=str(tmp_path / "none")), NOWHERE)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"^data\.path: .*/file is not a folder$"):
        folder.load(Data(source="folder", path=str(tmp_path / "file")), NOWHERE)


def test_unreadable_images_are_skipped_when_told_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {**pool_of(3), "cat/1.png": TRUNCATED})
    half = (tmp_path / "dog" / "2.png").read_bytes()
    (tmp_path / "dog" / "2.png").write_bytes(half[: len(half) // 2])
    with caplog.at_level(logging.WARNING):
        pool = load(tmp_path, skip_unreadable=True)["all"]
    assert pool.names == ("cat/0.png", "cat/2.png", "dog/0.png", "dog/1.png")
    assert pool.labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(everything(pool)[1, 0], np.asarray(picture(2)))
    assert "2 of 6 images cannot be read and are skipped: cat/1.png, dog/2.png" in caplog.text


def cinic(root: Path) -> Path:
    pictures: dict[str, Image.Image | bytes] = {}
    for part, split in enumerate(("train", "valid", "test")):
        for number, name in enumerate(cinic10.CLASSES):
            seed = 100 * part + 2 * number
            pictures[f"{split}/{name}/cifar10-train-{seed}.png"] = picture(seed, "RGB", (32, 32))
            mode = "L" if number == 3 else "RGB"
            pictures[f"{split}/{name}/n02691156_{seed + 1}.png"] = picture(seed + 1, mode, (32, 32))
    return write(root, pictures)


def test_cinic10_and_its_parts(tmp_path: Path) -> None:
    cinic(tmp_path)
    whole = cinic10.load(parameters(tmp_path, source="cinic10"), NOWHERE)
    assert list(whole) == ["train", "validation", "test"]
    assert whole["validation"].images.shape == (20, 3, 32, 32)
    digests = {folder.compute_digest(parameters(tmp_path))}
    for source, first in (("cinic10-cifar", "cifar10-train-100.png"), ("cinic10-imagenet", "n02691156_101.png")):
        wanted = parameters(tmp_path, source=source)
        wanted = replace(wanted, sha256=cinic10.compute_digest(wanted))
        digests.add(str(wanted.sha256))
        part = cinic10.load(wanted, NOWHERE)["validation"]
        part.check(source)
        assert part.names is not None
        assert part.names[0] == f"airplane/{first}"
        assert part.labels.tolist() == list(range(10))
        with Image.open(tmp_path / "valid" / part.names[3]) as image:
            np.testing.assert_array_equal(everything(part)[3].transpose(1, 2, 0), np.asarray(image.convert("RGB")))
    assert len(digests) == 3


def test_cinic10_names_what_is_not_its_own(tmp_path: Path) -> None:
    cinic(tmp_path)
    picture(0, "RGB", (32, 32)).save(tmp_path / "train" / "cat" / "mine.png")
    with pytest.raises(UserError, match=r"^data\.path: 'mine\.png' is no file of CINIC-10"):
        cinic10.load(parameters(tmp_path, source="cinic10-cifar"), NOWHERE)
    (tmp_path / "valid").rename(tmp_path / "validation")
    with pytest.raises(UserError, match=r"has no folder 'valid'; CINIC-10 has train, valid and test$"):
        cinic10.load(parameters(tmp_path, source="cinic10"), NOWHERE)


# Table 2 of not-bugs-2019, by hand: the super-class of each of the 1000 classes at the edges of its range.
EDGES = {
    29: None, 30: "frog", 32: "frog", 33: "turtle", 37: "turtle", 38: None, 79: None, 80: "bird", 100: "bird",
    101: None, 117: None, 118: "crab", 121: "crab", 122: None, 150: None, 151: "dog", 268: "dog", 269: None,
    280: None, 281: "cat", 285: "cat", 286: None, 299: None, 300: "insect", 319: "insect", 320: None, 364: None,
    365: "primate", 382: "primate", 383: None, 388: None, 389: "fish", 397: "fish", 398: None,
}  # fmt: skip


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1000 class folders with one image each. Those at edges differ; those of unused classes are unreadable."""
    root = tmp_path_factory.mktemp("imagenet")
    inside = {
        number for first, last in restricted_imagenet.RANGES.values() for number in range(first, last + 1)
    }  # which images are there at all, not which class they have
    plain = write(root, {"plain.JPEG": picture(0, "RGB", (12, 9))}) / "plain.JPEG"
    content = plain.read_bytes()
    plain.unlink()
    kinds = {30: picture(1, "L", (9, 12)), 151: picture(2, "CMYK", (10, 20)), 281: picture(3, "RGB", (30, 11))}
    for split in ("train", "val"):
        for number in range(1000):
            name = f"{split}/n{number:08d}/image_{number}.JPEG"
            write(root, {name: kinds.get(number, content) if number in inside else b"not read"})
    return root


def restricted(root: Path, **changes: object) -> Data:
    # With a digest, the images need not be all of ImageNet.
    wanted = Data(source="restricted-imagenet", path=str(root), size=8, sha256="")
    return replace(wanted, sha256=restricted_imagenet.compute_digest(wanted), **changes)


def test_restricted_imagenet_has_the_classes_of_the_table(imagenet: Path) -> None:
    raw = restricted_imagenet.load(restricted(imagenet), NOWHERE)
    assert list(raw) == ["train", "test"]
    assert raw["train"].class_names == ("dog", "cat", "frog", "turtle", "bird", "primate", "fish", "crab", "insect")
    test = raw["test"]
    test.check("restricted")
    assert test.names is not None
    found = {int(name[1:9]): test.class_names[label] for name, label in zip(test.names, test.labels, strict=True)}
    assert {number: found.get(number) for number in EDGES} == EDGES
    # The sums of the table's ranges: 118 + 5 + 3 + 5 + 21 + 18 + 9 + 4 + 20.
    assert len(found) == len(test.labels) == 203
    assert test.images.shape == (203, 3, 8, 8)
    for number in (30, 151, 281):
        row = test.names.index(f"n{number:08d}/image_{number}.JPEG")
        with Image.open(imagenet / "val" / test.names[row]) as image:
            width, height = image.size
            scaled = image.convert("RGB").resize(
                (8 * width // min(width, height), 8 * height // min(width, height)), Image.Resampling.BILINEAR
            )
        left, top = (scaled.width - 8) / 2, (scaled.height - 8) / 2
        expected = np.asarray(scaled.crop((round(left), round(top), round(left) + 8, round(top) + 8)))
        np.testing.assert_array_equal(test.images[np.array([row])][0].transpose(1, 2, 0), expected)


def test_restricted_imagenet_needs_a_size_and_all_classes(imagenet: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^data\.size: the source 'restricted-imagenet' needs a size"):
        restricted_imagenet.load(restricted(imagenet, size=None), NOWHERE)
    write(tmp_path, {"train/n00000001/a.JPEG": picture(0, "RGB"), "val/n00000001/a.JPEG": picture(0, "RGB")})
    with pytest.raises(UserError, match=r"train has 1 class folders; the ranges count in all 1000$"):
        restricted_imagenet.compute_digest(Data(source="restricted-imagenet", path=str(tmp_path), size=8))
    (tmp_path / "train").rename(tmp_path / "training")
    with pytest.raises(UserError, match=r"has no folder 'train'; an ImageNet folder has train and val$"):
        restricted_imagenet.compute_digest(Data(source="restricted-imagenet", path=str(tmp_path), size=8))


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the development data is not at {REAL}")
@pytest.mark.parametrize(
    ("archive", "split", "shape", "counts"),
    [
        ("mnist10k/mnist10k.zip", "train", (8000, 1, 28, 28), [801, 882, 814, 821, 790, 738, 771, 822, 758, 803]),
        ("cifar10/test.zip", "test", (10000, 3, 32, 32), [1000] * 10),
    ],
)
def test_real_images(tmp_path: Path, archive: str, split: str, shape: tuple[int, ...], counts: list[int]) -> None:
    with zipfile.ZipFile(REAL / archive) as packed:
        packed.extractall(tmp_path)
    raw = load(tmp_path)[split]
    raw.check(archive)
    assert raw.images.shape == shape
    assert np.bincount(raw.labels).tolist() == counts
    assert raw.names is not None
    rows = np.random.default_rng(0).choice(len(raw.labels), 40, replace=False)
    for image, row in zip(raw.images[rows], rows, strict=True):
        assert raw.names[row].startswith(f"{raw.class_names[raw.labels[row]]}/")
        with Image.open(tmp_path / split / raw.names[row]) as original:
            expected = np.asarray(original)
        np.testing.assert_array_equal(image, np.atleast_3d(expected).transpose(2, 0, 1))


def test_brought_sets_without_a_digest_must_be_the_published_ones(imagenet: Path, tmp_path: Path) -> None:
    """Half-unpacked folders are refused, also below the raw downloads; the message names their path."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "imagenet").symlink_to(imagenet)
    (tmp_path / "raw" / "cinic10").mkdir()
    cinic(tmp_path / "raw" / "cinic10")
    for source, expected in (
        (
            "restricted-imagenet",
            r"^data\.path: .*raw/imagenet: (train|val)/n\d+ has \d images, ImageNet's has",
        ),
        ("cinic10", r"^data\.path: .*raw/cinic10: train has \d+ images, not the published 90000; mend it, or give"),
        ("cinic10-cifar", r"^data\.path: .*raw/cinic10: train has \d+ images, not the published 20000"),
    ):
        with pytest.raises(UserError, match=expected):
            prepare_splits(Data(source=source, size=8), tmp_path / "raw")
    here, there = (Recipe("label", Data(source="cinic10", path=path), {}) for path in ("here", "there"))
    assert here.digest != there.digest
