"""Operations on the splits of a data set, against plain numpy on all of its images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from robustfeatures.data.operations import apply_operation
from robustfeatures.data.raw import Part, RawData
from robustfeatures.data.settings import (
    POOL,
    Concatenate,
    Data,
    KeepClasses,
    KeepListed,
    KeepNamed,
    MergeClasses,
    Operation,
    Relabel,
    Subset,
)
from robustfeatures.errors import UserError

LABELS = load_digits().target
IMAGES = load_digits().images.astype(np.uint8)[:, None]
NAMES = tuple("0123456789")


@dataclass
class Watched:
    """Images that record which rows are read."""

    images: NDArray[Any] = field(default_factory=lambda: IMAGES)
    read: list[int] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.images.dtype

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        self.read += rows.tolist()
        return self.images[rows]


def digits(images: Any = IMAGES, *, names: bool = True, class_names: tuple[str, ...] = NAMES) -> dict[str, Part]:
    """The digits as a pool split by thirds: train has every image whose index is not a multiple of 3."""
    files = tuple(f"{class_names[label]}/{place:04d}.png" for place, label in enumerate(LABELS)) if names else None
    pool = Part.from_raw(RawData(images, LABELS, class_names, files), POOL)
    places = np.arange(len(LABELS))
    return {"train": pool.select(places[places % 3 != 0]), "test": pool.select(places[places % 3 == 0])}


def no_other(parameters: Data) -> dict[str, Part]:
    raise AssertionError("no other data set was asked for")


def after(operation: Operation, parts: Mapping[str, Part] | None = None) -> dict[str, Part]:
    return apply_operation(digits() if parts is None else parts, operation, no_other)


def read(part: Part) -> NDArray[Any]:
    return part.images[np.arange(len(part.labels))]


def check_against_the_source(part: Part) -> None:
    """The images, names and indices of a part still belong together."""
    np.testing.assert_array_equal(read(part), IMAGES[part.source_index])
    assert part.images.shape == (len(part.labels), 1, 8, 8)
    assert part.names is not None
    assert [int(name[2:6]) for name in part.names] == part.source_index.tolist()


def test_five_against_seven() -> None:
    for split, part in after(KeepClasses(kind="classes", keep=("7", "5"))).items():
        check_against_the_source(part)
        before = digits()[split].source_index
        np.testing.assert_array_equal(part.source_index, before[np.isin(LABELS[before], (5, 7))])
        np.testing.assert_array_equal(part.labels, np.where(LABELS[part.source_index] == 7, 0, 1))
        assert part.class_names == ("7", "5")


PARITY = {"even": ("0", "2", "4", "6", "8"), "odd": ("1", "3", "5", "7", "9")}
HALVES = {"first": ("0", "1", "2", "3", "4"), "last": ("5", "6", "7", "8", "9")}


@pytest.mark.parametrize("turned", [False, True])
def test_parity_and_halves(*, turned: bool) -> None:
    """The order of the groups changes neither the result nor the digest."""
    for groups, expected in ((PARITY, LABELS % 2), (HALVES, LABELS // 5)):
        written = dict(reversed(groups.items())) if turned else groups
        for split, part in after(MergeClasses(kind="merge", groups=written)).items():
            check_against_the_source(part)
            np.testing.assert_array_equal(part.source_index, digits()[split].source_index)
            np.testing.assert_array_equal(part.labels, expected[part.source_index])
            assert part.class_names == tuple(groups)


def test_a_class_in_no_group_is_dropped() -> None:
    part = after(MergeClasses(kind="merge", groups={"round": ("8", "0"), "one": ("1",)}))["train"]
    check_against_the_source(part)
    assert set(LABELS[part.source_index].tolist()) == {0, 1, 8}
    np.testing.assert_array_equal(part.labels, LABELS[part.source_index] == 1)


def test_relabelling_exchanges_labels_and_keeps_the_classes() -> None:
    part = after(Relabel(kind="relabel", mapping={"3": "8", "8": "3"}))["train"]
    check_against_the_source(part)
    exchanged = np.arange(10)
    exchanged[[3, 8]] = [8, 3]
    np.testing.assert_array_equal(part.labels, exchanged[LABELS[part.source_index]])
    assert part.class_names == NAMES


@pytest.mark.parametrize("samples", [100, 599, 1198])
def test_a_subset_is_stratified_fixed_and_in_order(samples: int) -> None:
    before = digits()["train"]
    drawn = after(Subset(kind="subset", split="train", samples=samples, seed=3))
    part = drawn["train"]
    check_against_the_source(part)
    assert len(part.labels) == samples
    assert (np.diff(part.source_index) > 0).all()
    share = np.bincount(before.labels) * samples / len(before.labels)
    assert np.abs(np.bincount(part.labels) - share).max() <= 1
    np.testing.assert_array_equal(drawn["test"].source_index, digits()["test"].source_index)
    again = after(Subset(kind="subset", split="train", samples=samples, seed=3))["train"]
    np.testing.assert_array_equal(again.source_index, part.source_index)
    other = after(Subset(kind="subset", split="train", samples=samples, seed=4))["train"]
    assert np.array_equal(other.source_index, part.source_index) == (samples == 1198)


def test_the_rest_of_a_subset_is_every_other_image() -> None:
    before = digits()["train"].source_index
    drawn, rest = (
        after(Subset(kind="subset", split="train", samples=500, seed=3, rest=rest))["train"] for rest in (False, True)
    )
    check_against_the_source(rest)
    assert len(rest.labels) == len(before) - 500
    np.testing.assert_array_equal(np.sort(np.concatenate([drawn.source_index, rest.source_index])), before)
    assert (np.diff(rest.source_index) > 0).all()


def listing(tmp_path: Path, text: str | bytes, split: Any = "all", **changes: Any) -> KeepListed:
    path = tmp_path / "list.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    values = {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "split": split, **changes}
    return KeepListed(kind="listed", **values)


def test_a_list_of_indices(tmp_path: Path) -> None:
    chosen = [place for place in range(1797) if place % 7 != 2]
    lines = "# every image but some\n\n" + "\n".join(f"{place}  # kept" for place in reversed(chosen))
    parts = after(listing(tmp_path, lines))
    for split, part in parts.items():
        check_against_the_source(part)
        before = digits()[split].source_index
        np.testing.assert_array_equal(part.source_index, before[before % 7 != 2])


def test_a_list_of_names_and_indices(tmp_path: Path) -> None:
    names = [f"{LABELS[place]}/{place:04d}.png" for place in range(0, 1797, 2)]
    parts = after(listing(tmp_path, "\n".join([*names, *map(str, range(1, 200, 2))])))
    wanted = {*range(0, 1797, 2), *range(1, 200, 2)}
    assert {int(place) for part in parts.values() for place in part.source_index} == wanted
    for part in parts.values():
        check_against_the_source(part)


def test_a_list_for_one_of_the_sources_own_splits_leaves_the_others(tmp_path: Path) -> None:
    """As for CIFAR-minus-Flickr: train and validation share the indices of the train split, test has its own."""
    raw = RawData(IMAGES, LABELS, NAMES)
    train, test = Part.from_raw(raw, "train"), Part.from_raw(raw, "test")
    drawn = {"train": train.select(np.arange(0, 1000)), "validation": train.select(np.arange(1000, 1797)), "test": test}
    parts = after(listing(tmp_path, "\n".join(map(str, range(0, 1797, 3))), split="train"), drawn)
    assert parts["train"].source_index.tolist() == list(range(0, 1000, 3))
    assert parts["validation"].source_index.tolist() == list(range(1002, 1797, 3))
    assert len(parts["test"].labels) == 1797


def test_a_list_that_was_written_on_windows(tmp_path: Path) -> None:
    chosen = [place for place in range(1797) if place % 7 != 2]
    text = "\r\n".join([f"{LABELS[0]}/0000.png", *map(str, chosen[1:])])
    parts = after(listing(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert sorted(int(place) for part in parts.values() for place in part.source_index) == chosen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"0\n{'1' * 5000}\n", rf"list\.txt, line 2: no image of 'all' has the file name '{'1' * 60}\.\.\.'$"),
        (f"0\n-{'9' * 18}\n", rf"list\.txt, line 2: index -{'9' * 18} is out of range"),
        ("0\n# and\n1797\n", r"list\.txt, line 3: index 1797 is out of range; 'all' has 1797 images"),
        ("0\n-1\n", r"list\.txt, line 2: index -1 is out of range"),
        ("5\n6\n\n5\n", r"list\.txt, line 4: '5' is on line 1 already"),
        ("0/0000.png\n0\n", r"list\.txt, line 2: '0' is on line 1 already"),
        ("0\n9/9999.png\n", r"list\.txt, line 2: no image of 'all' has the file name '9/9999\.png'$"),
        ("# nothing\n", r".*list\.txt lists no image"),
        (b"\xff\xfe0", r".*list\.txt is not a text file in UTF-8"),
        ("1\n2\n3\n", r"no image of the class '0' is left in the split 'train'"),
    ],
)
def test_lists_that_are_refused(tmp_path: Path, text: str | bytes, expected: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.operations: listed: .*{expected}") as refusal:
        after(listing(tmp_path, text))
    assert "\n" not in str(refusal.value)


def test_lists_that_do_not_fit_the_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has the SHA-256 [0-9a-f]{64}, not 0000"):
        after(listing(tmp_path, "0", sha256="0" * 64))
    with pytest.raises(UserError, match=r"list\.txt has the SHA-256 [0-9a-f]{64}; give it in the recipe$"):
        after(listing(tmp_path, "0", sha256=None))
    with pytest.raises(UserError, match=r"none\.txt does not exist$"):
        after(listing(tmp_path, "0", path=str(tmp_path / "none.txt")))
    with pytest.raises(UserError, match=r"the source has no split 'train' \(it has: all\)$"):
        after(listing(tmp_path, "0", split="train"))
    with pytest.raises(UserError, match=r"line 1: 'a\.png' is no index, and the images .* have no file names$"):
        after(listing(tmp_path, "a.png"), digits(names=False))
    fewer = after(KeepClasses(kind="classes", keep=("1", "2")))
    with pytest.raises(UserError, match=r"'0/0000\.png'; list before other operations drop images$"):
        after(listing(tmp_path, "0/0000.png"), fewer)
    same = {split: Part(**{**vars(part), "names": ("a",) * len(part.labels)}) for split, part in digits().items()}
    with pytest.raises(UserError, match=r"1797 images have the file name 'a'; give their indices$"):
        after(listing(tmp_path, "a"), same)


def test_names_by_pattern() -> None:
    """A pattern without a slash matches the name below the class folder, one with a slash the whole name."""
    even = after(KeepNamed(kind="named", pattern="*[02468].png"))
    for split, part in even.items():
        check_against_the_source(part)
        before = digits()[split].source_index
        np.testing.assert_array_equal(part.source_index, before[before % 2 == 0])
    small = after(MergeClasses(kind="merge", groups={"four or less": HALVES["first"], "more": HALVES["last"]}))
    for split, part in after(KeepNamed(kind="named", pattern="[1-8]/0*"), small).items():
        check_against_the_source(part)
        before = digits()[split].source_index
        kept = (LABELS[before] % 9 != 0) & (before < 1000)
        np.testing.assert_array_equal(part.source_index, before[kept])


def second(parts: dict[str, Part]) -> Any:
    def load(parameters: Data) -> dict[str, Part]:
        assert parameters == Data(source="digits", split_seed=9)
        return parts

    return load


OTHER = Concatenate(kind="concatenate", data=Data(source="digits", split_seed=9))


def test_concatenation_goes_split_by_split_and_reads_only_what_is_asked_for() -> None:
    one, other = Watched(), Watched(255 - IMAGES)
    parts = digits(other)
    parts["validation"] = parts.pop("test")
    joined = apply_operation(digits(one), OTHER, second(parts))
    assert list(joined) == ["train", "test", "validation"]
    assert one.read == other.read == []
    train = joined["train"]
    index = digits()["train"].source_index
    # The second set's indices continue after the first's, so that each means one image.
    np.testing.assert_array_equal(train.source_index, np.concatenate([index, len(LABELS) + index]))
    np.testing.assert_array_equal(train.labels, LABELS[train.source_index % len(LABELS)])
    assert train.names == digits()["train"].names * 2
    assert train.images.shape == (2 * len(index), 1, 8, 8)
    rows = np.array([2 * len(index) - 1, 0, len(index), len(index) - 1])
    expected = np.concatenate([IMAGES[index], 255 - IMAGES[index]])[rows]
    np.testing.assert_array_equal(train.images[rows], expected)
    assert sorted(one.read) == [index[0], index[-1]] == sorted(other.read)
    np.testing.assert_array_equal(read(joined["validation"]), 255 - IMAGES[joined["validation"].source_index])


def test_a_list_after_a_concatenation_is_refused(tmp_path: Path) -> None:
    joined = apply_operation(digits(), OTHER, second(digits()))
    with pytest.raises(UserError, match=r"the source has no split 'all' .*; list before concatenating$"):
        after(listing(tmp_path, "0"), joined)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (digits(class_names=tuple("0123465789")), "the classes differ: class 5 is '5' and '6'$"),
        (digits(IMAGES[:, :, 1:]), r"the image shapes differ: \(1, 8, 8\) and \(1, 7, 8\)$"),
        (digits(IMAGES.astype(np.float32)), "the image types differ: uint8 and float32$"),
        (after(KeepClasses(kind="classes", keep=NAMES[:9])), "the classes differ: 10 and 9 of them$"),
    ],
)
def test_data_sets_that_cannot_be_joined(parts: dict[str, Part], expected: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.operations: concatenate: {expected}"):
        apply_operation(digits(), OTHER, second(parts))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (KeepClasses(kind="classes", keep=("5", "77")), r"classes: there is no class '77' \(did you mean '7'\?\)"),
        (KeepClasses(kind="classes", keep=("5", "5")), "classes: the class '5' is given twice; name it once"),
        (MergeClasses(kind="merge", groups={"a": ("1", "2"), "b": ("2",)}), "merge: the class '2' is given twice"),
        (MergeClasses(kind="merge", groups={"a": ("ten",)}), r"merge: there is no class 'ten' \(known: 0, 1, 2"),
        (Relabel(kind="relabel", mapping={"x": "1"}), "relabel: there is no class 'x'"),
        (Relabel(kind="relabel", mapping={"1": "x"}), "relabel: there is no class 'x'"),
        (
            Relabel(kind="relabel", mapping={"1": "2"}),
            "relabel: no image of the class '1' is left in the split 'train'; to join classes, use 'merge'",
        ),
        (
            Subset(kind="subset", split="train", samples=1199),
            "subset: 1199 samples of 1198 images in the split 'train'",
        ),
        (
            Subset(kind="subset", split="train", samples=1198, rest=True),
            "subset: 1198 samples leave no rest of the split 'train'",
        ),
        (Subset(kind="subset", split="train", samples=9), "subset: 9 samples cannot be drawn by class: "),
        (Subset(kind="subset", split="validation", samples=9), "subset: there is no split 'validation'"),
        (KeepNamed(kind="named", pattern="*.jpg"), r"named: no file name matches '\*\.jpg', such as '1/0001\.png'"),
        (KeepNamed(kind="named", pattern="000?.png"), "named: no image of the class '0' is left in the split 'train'"),
    ],
)
def test_operations_that_do_not_fit(operation: Operation, expected: str) -> None:
    with pytest.raises(UserError, match=rf"^data\.operations: {expected}") as refusal:
        after(operation)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("samples", "rest", "expected"),
    [
        (1191, False, "the 7 other images are fewer than the 10 classes; give 10 to 1188 or all 1198$"),
        (1191, True, "the 7 other images are fewer than the 10 classes; give 10 to 1188$"),
        (9, False, "they are fewer than the 10 classes; give 10 to 1188 or all 1198$"),
    ],
)
def test_a_subset_that_would_leave_a_class_out(samples: int, *, rest: bool, expected: str) -> None:
    with pytest.raises(UserError, match=f"^data.operations: subset: {samples} samples cannot be drawn .*: {expected}"):
        after(Subset(kind="subset", split="train", samples=samples, rest=rest))
    for possible in (10, 1188):
        part = after(Subset(kind="subset", split="train", samples=possible, rest=rest))["train"]
        assert set(part.labels.tolist()) == set(range(10))


@pytest.mark.parametrize(("rest", "remedy"), [(False, "give all 15"), (True, "the split has only 15 images")])
def test_a_subset_of_too_few_images(*, rest: bool, remedy: str) -> None:
    few = {"train": Part.from_raw(RawData(IMAGES[:15], np.arange(15) % 10, NAMES), "train")}
    with pytest.raises(UserError, match=rf"the 3 other images are fewer than the 10 classes; {remedy}$"):
        after(Subset(kind="subset", split="train", samples=12, rest=rest), few)


def test_patterns_need_names() -> None:
    with pytest.raises(UserError, match="named: the images of this source have no file names"):
        after(KeepNamed(kind="named", pattern="*"), digits(names=False))


def test_no_operation_reads_an_image(tmp_path: Path) -> None:
    watched = Watched()
    for operation in (
        KeepClasses(kind="classes", keep=("5", "7")),
        MergeClasses(kind="merge", groups=PARITY),
        Relabel(kind="relabel", mapping={"3": "8", "8": "3"}),
        Subset(kind="subset", split="train", samples=100),
        listing(tmp_path, "\n".join(map(str, range(900)))),
        KeepNamed(kind="named", pattern="*[02468].png"),
    ):
        after(operation, digits(watched))
    assert watched.read == []
