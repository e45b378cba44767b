"""What a plan finds in the user's own files before anything is computed; tests/tools/test_new_study.py has folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robustfeatures.data.settings import Data, KeepClasses, MergeClasses, Subset
from robustfeatures.errors import UserError
from robustfeatures.files import hash_file
from robustfeatures.pipeline.plan.contents import check_contents, count_classes


def write(path: Path, labels: list[int], **arrays: np.ndarray) -> Data:
    np.savez(path, images=np.zeros((len(labels), 1, 4, 4), np.uint8), labels=np.array(labels), **arrays)
    return Data(source="npz", path=str(path), sha256=hash_file(path), test=0.5)


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="data: holds one class, 0; a network needs two"):
        check_contents(write(tmp_path / "one.npz", [0, 0, 0, 0]), "data")
    check_contents(write(tmp_path / "two.npz", [0, 1, 0, 1]), "data")


@pytest.mark.parametrize(
    "operation", [KeepClasses(kind="classes", keep=("1",)), MergeClasses(kind="merge", groups={"odd": ("1", "3")})]
)
def test_one_class_of_a_published_set_is_refused(operation: KeepClasses | MergeClasses) -> None:
    with pytest.raises(UserError, match=r"^data: holds one class; a network needs two$"):
        check_contents(Data(source="digits", test=0.25, operations=(operation,)), "data")


@pytest.mark.parametrize(
    ("source", "before", "samples"),
    [
        # Classes differ in size: 24 446 of 73 257 training images of SVHN show a 1 or a 2; 13 007 of MNIST a 1 or a 7.
        ("svhn", KeepClasses(kind="classes", keep=("1", "2")), 24_446),
        ("mnist", MergeClasses(kind="merge", groups={"one": ("1",), "seven": ("7",)}), 13_007),
    ],
)
def test_a_subset_of_chosen_classes_is_counted_by_the_job(
    source: str, before: KeepClasses | MergeClasses, samples: int
) -> None:
    subset = Subset(kind="subset", split="train", samples=samples)
    check_contents(Data(source=source, operations=(before, subset)), "data")
    with pytest.raises(UserError, match=r"^data\.operations\.1\.samples: 80000 is more than the \d+ images of train$"):
        check_contents(Data(source=source, operations=(before, replace(subset, samples=80_000))), "data")


@pytest.mark.parametrize("names", [np.array(["cat", "dog"]), np.array([b"cat", b"dog"])])
def test_classes_are_known_by_the_names_in_the_file(tmp_path: Path, names: np.ndarray) -> None:
    data = write(tmp_path / "own.npz", [0, 1, 0, 1], class_names=names)
    known, unknown = (
        Data(**{**vars(data), "operations": (KeepClasses(kind="classes", keep=("cat", other)),)})
        for other in ("dog", "dgo")
    )
    check_contents(known, "data")
    with pytest.raises(UserError, match=r"data\.operations\.0\.keep: there is no class 'dgo' \(did you mean 'dog'\?\)"):
        check_contents(unknown, "data")


def test_classes_are_counted_where_they_are_known(tmp_path: Path) -> None:
    assert count_classes(write(tmp_path / "own.npz", [0, 1, 2, 1])) == 3
    assert count_classes(Data(source="digits")) == 10
    kept = KeepClasses(kind="classes", keep=("1", "7"))
    merged = MergeClasses(kind="merge", groups={"a": ("1",), "b": ("2", "3"), "c": ("4",)})
    assert count_classes(Data(source="digits", operations=(kept,))) == 2
    assert count_classes(Data(source="digits", operations=(merged,))) == 3
    assert count_classes(Data(source="folder", path=str(tmp_path / "not there"))) is None


def test_what_the_job_refuses_is_left_to_the_job(tmp_path: Path) -> None:
    check_contents(write(tmp_path / "large.npz", [0, 10**15]), "data")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK")
    check_contents(Data(source="npz", path=str(broken), sha256=hash_file(broken), test=0.5), "data")
