"""What a plan and `fetch` find in the folder of images of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustfeatures.data.folder import compute_digest
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan import contents
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.fetching import fetch
from robustfeatures.tools.new_study import write_study
from tests.tools.image_folders import images


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            "{kind: classes, keep: [class 0, klass 1]}",
            r"operations.0.keep: there is no class 'klass 1' \(did you mean 'cla",
        ),
        ("{kind: classes, keep: [class 0]}", "data: holds one class, class 0; a network needs two"),
        ("{kind: merge, groups: {both: [class 0, class 9]}}", "operations.0.groups.both: there is no class 'class 9'"),
        ("{kind: relabel, mapping: {class 7: class 0}}", "operations.0.mapping: there is no class 'class 7'"),
        ("{kind: subset, split: train, samples: 99}", r"operations.0.samples: 99 is more than the \d+ images of train"),
        (
            "{kind: listed, path: /dev/null, sha256: abc}",
            "data.operations.0.sha256: /dev/null has the SHA-256 e3b0c442",
        ),
    ],
)
def test_a_plan_looks_into_the_folder(studies: Path, tmp_path: Path, operation: str, message: str) -> None:
    list(write_study("mine", images(tmp_path / "grey", 3, 14, (16, 16)), studies))
    path = studies / "mine.yaml"
    path.write_text(path.read_text().replace("  source: folder\n", f"  source: folder\n  operations: [{operation}]\n"))
    with pytest.raises(UserError, match=message):
        unfold(Config(study="mine"), studies)


def test_a_plan_finds_files_that_have_changed(
    studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = images(tmp_path / "grey", 2, 12, (16, 16))
    list(write_study("mine", folder, studies))
    unfold(Config(study="mine"), studies)
    (folder / "class 1" / "3.png").unlink()
    with pytest.raises(UserError, match=r"mine\.yaml: data\.sha256: .*grey has the SHA-256 \w+, not \w+; is"):
        unfold(Config(study="mine"), studies)
    # What has been hashed is known, however large it is. Other states of more bytes are named, and not hashed.
    monkeypatch.setattr(contents, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match=r"has the SHA-256 \w+, not \w+; is"):
        unfold(Config(study="mine"), studies)
    (folder / "class 1" / "4.png").unlink()
    capsys.readouterr()
    unfold(Config(study="mine"), studies)
    line = capsys.readouterr().err
    assert line.startswith(f"robustfeatures: data.sha256: {folder} has 0.0 GB, which a plan does not read; after a ch")
    assert line.count("\n") == 1
    with pytest.raises(UserError, match="has the SHA-256"):
        list(fetch(studies / "mine.yaml", tmp_path / "raw"))
    with pytest.raises(UserError, match=r"mine\.yaml: data\.sha256: .* has the SHA-256"):
        unfold(Config(study="mine"), studies)


@pytest.mark.parametrize("harm", ["a link to nothing", "links in a circle", "an empty class"])
def test_a_plan_finds_changes_beside_what_it_cannot_read(studies: Path, tmp_path: Path, harm: str) -> None:
    folder = images(tmp_path / "grey", 2, 12, (16, 16))
    list(write_study("mine", folder, studies))
    if harm == "a link to nothing":
        (folder / ".lock").symlink_to("gone")
        message = r"mine\.yaml: data\.sha256: .*grey has the SHA-256 \w+, not"
    elif harm == "links in a circle":
        for label in range(2):
            (folder / f"class {label}" / "up").symlink_to("..")
            (folder / f"class {label}" / "itself").symlink_to("itself")
        assert "not read: 2 other files" in "".join(write_study("again", folder, studies))
        message = r"mine\.yaml: data\.sha256: .*grey has the SHA-256 \w+, not"
    else:
        (folder / "class 2").mkdir()
        message = r"mine\.yaml: data\.path: the class folder .*class 2 holds no image"
    (folder / "class 1" / "3.png").unlink()
    with pytest.raises(UserError, match=message):
        unfold(Config(study="mine"), studies)


def test_a_plan_needs_images_to_train_on(studies: Path, tmp_path: Path) -> None:
    whole = images(tmp_path / "split" / "train", 2, 12, (16, 16)).parent
    images(whole / "test", 2, 12, (16, 16))
    list(write_study("mine", whole, studies))
    path, split = studies / "mine.yaml", tmp_path / "other"
    images(split / "test", 2, 12, (16, 16))
    digests = [compute_digest(Data(source="folder", path=str(each))) for each in (whole, split)]
    path.write_text(path.read_text().replace(str(whole), str(split)).replace(*digests))
    with pytest.raises(UserError, match=r"mine\.yaml: data: has no images to train on, only test$"):
        unfold(Config(study="mine"), studies)


def test_fetch_finds_a_damaged_image(studies: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "grey", 2, 12, (16, 16))
    damaged = folder / "class 1" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    list(write_study("mine", folder, studies))
    with pytest.raises(UserError, match=r"1 of 24 images cannot be read, first class 1/3\.png"):
        list(fetch(studies / "mine.yaml", tmp_path / "raw"))
