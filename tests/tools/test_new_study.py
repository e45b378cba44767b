"""`new`: a study for a folder of images."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from robustfeatures.data.folder import compute_digest
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan import contents
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.tools import new_study
from robustfeatures.tools.fetching import fetch
from robustfeatures.tools.new_study import write_study
from tests.tools.image_folders import images


def test_small_grey_images_are_like_the_digits(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "grey", 3, 10, (16, 16))
    lines = list(write_study("mine", folder, studies))
    assert "30 images of 3 classes, 1 x 16 x 16, as in digits" in lines[0]
    study, like = read_study(studies / "mine.yaml"), read_study(studies / "digits.yaml")
    assert study.data is not None
    assert (study.data.source, study.data.path, study.data.size) == ("folder", str(folder), None)
    assert study.robustness is not None
    assert like.robustness is not None
    # Four times the pixels, twice the length.
    assert study.robustness.eps == tuple(2 * eps for eps in like.robustness.eps)
    adversary, before = study.training["adversarial"].adversary, like.training["adversarial"].adversary
    assert adversary is not None
    assert before is not None
    assert (adversary.eps, adversary.step_size) == pytest.approx((2 * before.eps, 2 * before.step_size))
    assert study.robustness.attacks == like.robustness.attacks
    # 30 images without a quarter to test and 15 % to validate, and a batch is no larger.
    assert study.training["standard"].batch_size == 17
    assert len(unfold(Config(study="mine"), studies).recipes) > 20
    text = (studies / "mine.yaml").read_text()
    assert text.startswith((studies / "digits.yaml").read_text().partition("\n")[0])
    assert '# The classes, with their images: "class 0" (10), "class 1" (10), "class 2" (10).' in text
    assert str(study.data.sha256) in "".join(fetch(studies / "mine.yaml", tmp_path / "raw"))


def test_photographs_of_many_sizes(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "colour" / "train", 2, 40, (100, 80, 3)).parent
    images(folder / "test", 2, 5, (90, 120, 3))
    list(write_study("mine", folder, studies))
    study = read_study(studies / "mine.yaml")
    assert study.data is not None
    assert (study.data.size, study.data.test, study.data.validation) == (64, None, 0.15)
    assert study.robustness is not None
    # Four times as many pixels as in the study for photographs: radii that are twice as large.
    like = read_study(studies / "cifar10-mini.yaml")
    assert like.robustness is not None
    assert study.robustness.eps == pytest.approx([0.25 * 2, 0.5 * 2])
    assert study.robustness.eps == pytest.approx([2 * eps for eps in like.robustness.eps])
    assert (study.published_setting, study.reduced) == (None, False)


def test_every_radius_grows(studies: Path, tmp_path: Path) -> None:
    added = (
        "other_architectures: {linear: {name: linear}}\n\nexperiments:\n  X6: {radii: [0.25, 0.5, 1.0], eps: 0.25}\n"
    )
    text = (studies / "cifar10-mini.yaml").read_text()
    (studies / "radii.yaml").write_text(text.replace("experiments:\n", added))
    list(write_study("mine", images(tmp_path / "colour", 2, 40, (64, 64, 3)), studies, like="radii"))
    study, like = read_study(studies / "mine.yaml"), read_study(studies / "radii.yaml")
    assert study.experiments["X6"]["radii"] == [2 * eps for eps in like.experiments["X6"]["radii"]]


def test_files_that_are_not_read_are_named(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "grey", 2, 10, (16, 16))
    assert not [line for line in write_study("mine", folder, studies) if "not read" in line]
    (folder / "class 0" / "more").mkdir()
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(folder / "class 0" / "more" / "1.png")
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(folder / "class 1" / "x.gif")
    (folder / ".hidden").touch()
    lines = list(write_study("again", folder, studies))
    first = folder / "class 0" / "more" / "1.png"
    assert f"not read: 2 other files, first {first}; images lie in class folders (.png, .jpg, .jpeg, " in lines[1]


@pytest.mark.parametrize("name", ["2024", "1e3", "1_000", "0x1f", "True", "null", "3.5", "infinity"])
def test_names_that_the_command_line_reads_otherwise(studies: Path, tmp_path: Path, name: str) -> None:
    folder = images(tmp_path / "grey", 2, 10, (16, 16))
    with pytest.raises(
        UserError, match=rf"{name}: `--config study={name}` would not read this as text; choose another"
    ):
        list(write_study(name, folder, studies))


def test_a_name_with_a_date_is_text(studies: Path, tmp_path: Path) -> None:
    list(write_study("2024.01.05", images(tmp_path / "grey", 3, 10, (16, 16)), studies))
    assert (studies / "2024.01.05.yaml").is_file()


@pytest.mark.parametrize("name", ["store", "raw", "artifacts", "compared-digits-mine"])
def test_names_of_folders_that_are_there(studies: Path, tmp_path: Path, name: str) -> None:
    folder = images(tmp_path / "grey", 2, 10, (16, 16))
    with pytest.raises(UserError, match=rf"^NAME: study: results/{name} is for something else; give the study another"):
        list(write_study(name, folder, studies))


def test_other_ways_to_write_a_study(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "grey ä", 3, 10, (16, 16))
    text = (studies / "digits.yaml").read_text()
    blank = text.replace("  source: digits\n", "  source: digits\n\n# A comment.\n", 1)
    assert blank != text
    (studies / "blank.yaml").write_text(blank)
    list(write_study("mine", folder, studies, like="blank"))
    study, like = read_study(studies / "mine.yaml"), read_study(studies / "digits.yaml")
    assert study.training.keys() == like.training.keys()
    assert "grey ä" in (studies / "mine.yaml").read_text()


def added(studies: Path, **changes: str) -> str:
    """Write the study `other`: digits with these experiments, or with other radii."""
    text = (studies / "digits.yaml").read_text()
    for field, value in changes.items():
        before = "  eps: [0.25, 0.5, 0.75]\n" if field == "eps" else "experiments:\n"
        assert text.count(before) == 1
        text = text.replace(before, value if field == "eps" else f"{before}  {field}: {value}\n")
    (studies / "other.yaml").write_text(text)
    return "other"


@pytest.mark.parametrize(
    "written", [" [2.5E-1, 0.5]", "\n    - 0.25\n    - .5", " [1/4, 5.e-1]", " &radii [0.25, 0.5]"]
)
def test_radii_in_every_way_to_write_them(studies: Path, tmp_path: Path, written: str) -> None:
    folder = images(tmp_path / "grey", 3, 10, (16, 16))
    list(write_study("mine", folder, studies, like=added(studies, eps=f"  eps:{written}\n")))
    robustness = read_study(studies / "mine.yaml").robustness
    assert robustness is not None
    assert robustness.eps == (0.5, 1.0)


def test_radii_of_toy_models_stay(studies: Path, tmp_path: Path) -> None:
    toys = {"B7": "{eps: 0.16}", "A13": "{eps: 0.28}"}
    list(write_study("mine", images(tmp_path / "grey", 3, 10, (16, 16)), studies, like=added(studies, **toys)))
    study = read_study(studies / "mine.yaml")
    assert (study.experiments["B7"], study.experiments["A13"]) == ({"eps": 0.16}, {"eps": 0.28})
    assert study.robustness is not None
    assert study.robustness.eps == (0.5, 1.0, 1.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"D4": "{eps: 0.2, pairs: [['0', '1']]}"}, r"has Linf radii, in experiments\.D4, which do not grow"),
        (
            {"C7": "{data: D, architecture: linear, training: standard, eps: 0.2, fractions: [0.5]}"},
            r"has Linf radii, in experiments\.C7, which",
        ),
        ({"C2": "{eps: {l2: [0.5], linf: [0.1]}}"}, r"has Linf radii, in experiments\.C2, which"),
        ({"X1": "{eps: &same 0.5}", "B7": "{eps: *same}"}, "the length 0.5 is no plain number, or another value too"),
    ],
)
def test_lengths_that_do_not_grow_are_refused(
    studies: Path, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    like = added(studies, **dict(reversed(changes.items())))
    folder, before = images(tmp_path / "grey", 3, 10, (16, 16)), sorted(studies.iterdir())
    with pytest.raises(UserError, match=f"^--like: other:? {message}"):
        list(write_study("mine", folder, studies, like=like))
    text = (studies / "digits.yaml").read_text().replace("  norm: l2\n", "  norm: 'linf'\n")
    (studies / "other.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^--like: other has Linf radii, in robustness"):
        list(write_study("mine", folder, studies, like=like))
    assert sorted(studies.iterdir()) == before


def test_no_file_is_left_whatever_is_raised(studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(new_study, "unfold", fail)
    before = sorted(studies.iterdir())
    with pytest.raises(KeyboardInterrupt):
        list(write_study("mine", images(tmp_path / "grey", 3, 10, (16, 16)), studies))
    assert sorted(studies.iterdir()) == before


def test_nothing_is_overwritten_and_nothing_wrong_is_left(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "grey", 2, 10, (16, 16))
    before = sorted(studies.iterdir())
    for arguments, message in (
        (("digits", folder, studies), "there is such a study already"),
        (("../up", folder, studies), "study"),
        (("mine", tmp_path / "nothing", studies), f"^--data: {tmp_path / 'nothing'} does not exist$"),
        (
            ("mine", images(tmp_path / "one", 1, 20, (16, 16)), studies),
            f"^--data: {tmp_path / 'one'}: data: holds one class, class 0",
        ),
        (("mine", images(tmp_path / "few", 2, 1, (16, 16)), studies), f"^--data: {tmp_path / 'few'}: too few images;"),
        (("mine", folder, tmp_path / "elsewhere"), f"^{tmp_path / 'elsewhere'}: no such folder; run this in the root"),
        (
            ("mine", images(tmp_path / "split" / "test", 2, 20, (16, 16)).parent, studies),
            f"^--data: {tmp_path / 'split'} has no images to train on, only test$",
        ),
    ):
        with pytest.raises(UserError, match=message):
            list(write_study(*arguments))
    for like, message in (
        ("at-odds-mnist", "at-odds-mnist has Linf radii"),
        ("feature-averaging", "feature-averaging has other data sets, in other_data; choose"),
        ("digits-full", "digits-full extends another study, .* choose digits$"),
        # What these extend has other data sets, or Linf radii.
        ("not-bugs-cifar10-cpu", "not-bugs-cifar10-cpu extends .*; choose digits or cifar10-mini$"),
        ("at-odds-cifar10-cpu", "at-odds-cifar10-cpu extends .*; choose digits or cifar10-mini$"),
        ("digit", r"'digit' is unknown \(did you mean 'digits'\?\)$"),
    ):
        with pytest.raises(UserError, match=f"^--like: {message}"):
            list(write_study("mine", folder, studies, like=like))
    needy = (studies / "digits.yaml").read_text().replace("experiments:\n", "experiments:\n  X1: {}\n")
    (studies / "needy.yaml").write_text(needy)
    with pytest.raises(UserError, match=r"^--like: needy does not fit these images: (?!.*mine\.yaml)") as caught:
        list(write_study("mine", folder, studies, like="needy"))
    assert "X1" in str(caught.value)
    (studies / "needy.yaml").unlink()
    assert sorted(studies.iterdir()) == before


def test_names_that_are_not_utf8_are_refused(studies: Path, tmp_path: Path) -> None:
    """No study and no page could hold them."""
    before = sorted(studies.iterdir())
    folder = images(tmp_path / "set", 2, 10, (16, 16))
    called = (folder / "class 1").rename(folder / os.fsdecode(b"\xff"))
    message = r"/set: the name of the class '\\udcff' is not UTF-8; rename it$"
    with pytest.raises(UserError, match=rf"^--data: .*{message}"):
        list(write_study("mine", folder, studies))
    data = Data(source="folder", path=str(folder), test=0.5)
    with pytest.raises(UserError, match=rf"^data\.path: .*{message}"):
        contents.check_contents(replace(data, sha256=compute_digest(data)), "data")
    called.rename(folder / "class 1")
    with pytest.raises(UserError, match=r"^--data: .*/\\udcff: the path is not UTF-8, as a study is; rename"):
        list(write_study("mine", folder.rename(tmp_path / os.fsdecode(b"\xff")), studies))
    assert sorted(studies.iterdir()) == before


@pytest.mark.parametrize(
    "written",
    ['"data":', "data :", "'data': {source: digits,\n  test: 0.25,\n# Here.\n  validation: 0.15\n}\n", "? data\n:"],
)
def test_the_data_are_replaced_however_they_are_written(studies: Path, tmp_path: Path, written: str) -> None:
    base = (studies / "digits.yaml").read_text()
    old = re.search(r"^data:\n(  .*\n)+", base, flags=re.MULTILINE)
    assert old is not None
    new = written if written.endswith("\n") else old[0].replace("data:", written)
    text = base.replace(old[0], f"{new}\n# Of the next field.\n").replace("title:", '"title" :')
    (studies / "like.yaml").write_text(text)
    folder = images(tmp_path / "grey", 3, 10, (16, 16))
    list(write_study("mine", folder, studies, like="like"))
    study = read_study(studies / "mine.yaml")
    assert study.data is not None
    assert (study.data.source, study.title) == ("folder", f"Images in {folder}")
    assert "# Of the next field." in (studies / "mine.yaml").read_text()
    (studies / "like.yaml").write_text(yaml.safe_dump(yaml.safe_load(base), default_flow_style=True))
    with pytest.raises(UserError, match=r"^--like: like has fields in braces or by a merge, not on lines of their own"):
        list(write_study("other", folder, studies, like="like"))


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("RGBA", "^--data: .*/colour: class 1/3.png: the mode is RGBA; save it with 8 bits a channel, grey or RGB"),
        ("L", "^--data: .*/colour: class 1/3.png: grey image where colour is expected, as in class 0/0.png"),
        ("I;16", "^--data: .*/colour: class 1/3.png: the mode is I;16"),
        (None, r"class 1/3.png: no image that Pillow reads as .*; mend or remove it"),
    ],
)
def test_images_that_no_job_would_read(studies: Path, tmp_path: Path, mode: str | None, message: str) -> None:
    folder = images(tmp_path / "colour", 2, 10, (16, 16, 3))
    odd = folder / "class 1" / "3.png"
    if mode is None:
        odd.write_text("no image")
    else:
        Image.new(mode, (16, 16)).save(odd)
    with pytest.raises(UserError, match=message):
        list(write_study("mine", folder, studies))
    assert not (studies / "mine.yaml").exists()
