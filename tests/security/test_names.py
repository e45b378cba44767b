"""Titles, class names and file names that contain commands for a browser, a terminal or LaTeX."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt
from PIL import Image

from robustfeatures.data import folder, npz
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.download import download
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError, make_printable
from robustfeatures.experiments.shared.plots import sample_blocks
from robustfeatures.experiments.shared.plots.images import LONGEST_LABEL
from robustfeatures.pipeline.report.tables import escape_markdown
from robustfeatures.pipeline.report.views import report
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.tools.exporting import export
from tests.data.test_download import Server
from tests.pipeline.report.made_up import CLAIMS, IDS, claim_rows, made_up_study, words
from tests.security.hostile import NAMES, assert_one_line


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text outside of style sheets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def page(results: Path, name: str) -> Page:
    """The page of a study in which a title, its file, claims, captions and a table are called `name`."""
    view = made_up_study(results, said={each: words(each, name) for each in IDS}, figure_size=(230, 68))
    claim_rows([(each, name, name, control, name) for each, _, _, control, _ in CLAIMS[3:]]).to_csv(
        view.folder / "claims.csv", index=False
    )
    record = {**view.record, "title": name, "study_file": f"title: {name}"}
    return Page(report.make(replace(view, record=record)).contents[".html"].decode())


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page(tmp_path_factory.mktemp("harmless"), "name")


@pytest.mark.parametrize("name", NAMES)
def test_the_report_shows_names_as_they_are(tmp_path: Path, harmless: Page, name: str) -> None:
    shown = page(tmp_path, name)
    assert shown.elements == harmless.elements
    assert shown.attributes == harmless.attributes
    # Title, heading, study file; caption, warning and provenance of four figures; three claims; a table.
    assert shown.text.count(name) >= 3 + 4 * 3 + 3 * 2 + 2
    assert shown.text.replace(name, "name") == harmless.text


@pytest.mark.parametrize("name", [*NAMES, "two\nlines\n\n# heading\n<b>", "\n| a | b |\n|---|---|\n| c | d |"])
def test_markdown_shows_titles_as_they_are(name: str) -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    text = Page(rendered.render(f"Measured: {escape_markdown(name)}, float32."))
    assert text.elements == ["p"]
    assert text.text.strip() == f"Measured: {make_printable(name)}, float32."


def samples(class_names: tuple[str, ...]) -> ImageDataset:
    count = len(class_names)
    columns = {name: np.arange(count) for name in ("source_index", "source_label", "target", "start_index")}
    images = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
    return ImageDataset(images, np.arange(count), columns, class_names)


def test_figures_show_names_as_they_are() -> None:
    names = (*NAMES, "two\nlines", "unpaired surrogate \udcff", "e" * 100_000)
    data = samples(names)
    figure = sample_blocks(data, {"D_R": data}, images=len(names))
    titles = {text.get_text() for text in figure.axes[0].texts}
    assert titles == {
        *("D", "D_R", "original", "derived", "change x 1"),
        *(
            shown if len(shown := make_printable(n)) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"
            for n in names
        ),
    }
    for kind in ("png", "pdf"):
        figure.savefig(io.BytesIO(), format=kind)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_is_one_harmless_line(name: str) -> None:
    message = str(UserError(f"{name}\n\r\x0b\u2028 is wrong"))
    assert_one_line(message)
    if name.isprintable():
        assert message.startswith(name)


NO_FOLDERS = (
    "",
    ".",
    "..",
    "../up",
    "a/b",
    "/etc",
    "a\\b",
    ".hidden",
    "a\0b",
    "\x1b]0;x\x07",
    "a\nb",
    "\u202e",
    "ä" * 128,
)


@pytest.mark.parametrize("name", NO_FOLDERS)
def test_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data.zarr"
    write_dataset(path, {"train": samples(("fine", name))})
    with pytest.raises(UserError, match="cannot be the name of a folder") as caught:
        export(path, tmp_path / "out", "folder")
    assert_one_line(str(caught.value))
    assert [one.name for one in tmp_path.iterdir()] == ["data.zarr"]


@pytest.mark.parametrize("names", [("Cat", "cAT"), ("é", "e\u0301"), ("straße", "STRASSE")])
def test_names_of_one_folder(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / "data.zarr"
    write_dataset(path, {"train": samples(names)})
    with pytest.raises(UserError, match="another class folder has this name"):
        export(path, tmp_path / "out", "folder")


def test_other_names_are_exported_and_read_again(tmp_path: Path) -> None:
    names = tuple(sorted(name for name in NAMES if name.isprintable() and not set(name) & set("/\\")))
    assert len(names) > 5
    path = tmp_path / "data.zarr"
    write_dataset(path, {"train": samples(names)})
    export(path, tmp_path / "out", "folder")
    wanted = Data(source="folder", path=str(tmp_path / "out"))
    raw = folder.load(Data(source="folder", path=wanted.path, sha256=folder.compute_digest(wanted)), Path())
    assert raw["train"].class_names == names
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data.zarr", "out"]


@pytest.mark.parametrize("name", ["n" * 201, "two\nlines", "two\u2028lines"])
def test_class_names_that_no_study_could_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=np.zeros((2, 1, 3, 3), np.uint8), labels=np.arange(2), class_names=np.array(["a", name]))
    wanted = Data(source="npz", path=str(path))
    with pytest.raises(UserError, match=r"class_names: the name of class 1 begins '\w+") as caught:
        npz.load(Data(source="npz", path=str(path), sha256=npz.compute_digest(wanted)), Path())
    assert_one_line(str(caught.value))
    assert len(str(caught.value)) < 400


def images(path: Path, *names: str | bytes) -> Data:
    """A folder of one class with images of these names."""
    (path / "class").mkdir(parents=True)
    for number, name in enumerate(names):
        place = os.fsencode(path / "class") + b"/" + os.fsencode(name)
        with open(place, "wb") as file:  # noqa: PTH123
            Image.new("L", (4, 4), number).save(file, "PNG")
    data = Data(source="folder", path=str(path))
    return Data(source="folder", path=str(path), sha256=folder.compute_digest(data))


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    data = images(tmp_path / "set", b"\xff\xfe.png", "fine.png")
    raw = folder.load(data, Path())["all"]
    assert raw.images[np.arange(2)].shape == (2, 1, 4, 4)
    (tmp_path / "set" / "class" / "fine.png").write_bytes(b"no image")
    os.rename(tmp_path / "set" / "class" / "fine.png", os.fsencode(tmp_path) + b"/set/class/\xff.png")  # noqa: PTH104
    with pytest.raises(UserError) as caught:
        folder.load(images_again(data), Path())
    assert_one_line(str(caught.value))
    str(caught.value).encode()


def images_again(data: Data) -> Data:
    """The same folder after its files were changed."""
    return Data(source="folder", path=data.path, sha256=folder.compute_digest(data))


def test_an_image_that_another_program_would_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands EPS to Ghostscript, whatever the name of the file ends in."""
    marker, programs = tmp_path / "marker", tmp_path / "programs"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    data = images(tmp_path / "set", "fine.png", "other.png")
    eps = io.BytesIO()
    Image.new("L", (4, 4)).save(eps, "EPS")
    (tmp_path / "set" / "class" / "other.png").write_bytes(eps.getvalue())
    with pytest.raises(UserError, match=r"1 of 2 images cannot be read, first class/other\.png") as caught:
        folder.load(images_again(data), Path())
    assert_one_line(str(caught.value))
    assert not marker.exists()
    # Without the check it would have done harm.
    with Image.open(eps) as image, pytest.raises(OSError, match=r".*"):
        image.load()
    assert marker.exists()


def test_a_server_whose_answer_is_for_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    server = Server({})
    monkeypatch.setattr(server, "answer", lambda request: request.send_error(404, "\x1b]0;owned\x07"))
    with pytest.raises(UserError, match="the server answered 404") as caught:
        download(server.url + "file", tmp_path / "file", md5="0" * 32)
    server.close()
    assert_one_line(str(caught.value))
