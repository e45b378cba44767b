"""Claims and a page say so when a table or figure alone was made again and shows other results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from robustfeatures.files import write_json
from robustfeatures.pipeline.report.outdated import NOTICES, forget_marks, mark_outdated
from robustfeatures.pipeline.store.references import Artifacts, read_content

DIGEST = "0" * 16


def part(experiment: str, artifact: str) -> dict[str, Any]:
    need = {"row": "D", "seed": 0, "artifact": artifact, "columns": {}}
    return {"id": experiment, "settings": {}, "needs": [need], "gates": []}


def write_figure(artifacts: Artifacts, experiment: str, artifact: str, content: str = "1") -> str:
    """A figure that shows the results of `artifact`, which have this content; its own files follow from it."""
    record = {"stage": "figure", "label": f"s-{experiment}", "study": "s", "published_setting": None}
    name = f"figure/s-{experiment}-{artifact}"
    reference = {"recipe": {**record, "parts": [part(experiment, artifact)]}, "contents": {artifact: content}}
    write_json(artifacts.reference(name), {**reference, "files": {"figure.png": {"sha256": f"png of {content}"}}})
    return name


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    """The claims and the page of a study s, of experiments A1 and B1."""
    found = Artifacts(tmp_path / "artifacts")
    parts = [part("A1", "old"), part("B1", "old")]
    views = [{"kind": "figure", "experiments": [each], "artifact": f"figure/s-{each}-old"} for each in ("A1", "B1")]
    claims = {"stage": "claims", "parts": parts, "views": [], "outputs": ["s/claims.csv"], "published_setting": None}
    page = {"stage": "report", "parts": parts, "views": views, "outputs": ["s/report/index.html"]}
    shown = {
        name: read_content(found.reference(name))
        for each in ("A1", "B1")
        for name in [write_figure(found, each, "old")]
    }
    for record, contents in ((claims, {"old": "1"}), (page, {"old": "1", **shown})):
        write_json(found.reference(f"{record['stage']}/s-{DIGEST}"), {"recipe": record, "contents": contents})
    (tmp_path / "s/report").mkdir(parents=True)
    (tmp_path / "s/report/index.html").write_text(f"<h1>s</h1>\n{NOTICES}\n<p>rest</p>")
    (tmp_path / "s/claims.csv").write_text('experiment,claim\nA1,"one, two"\nB1,three\n')
    return found


def files(artifacts: Artifacts) -> tuple[str, str]:
    folder = artifacts.root.parent / "s"
    return (folder / "claims.csv").read_text(), (folder / "report/index.html").read_text()


def references(artifacts: Artifacts) -> list[Path]:
    return [path for kind in ("claims", "report") for path in artifacts.builds(kind, "s")]


def test_the_same_results_mark_nothing(artifacts: Artifacts) -> None:
    before = files(artifacts)
    mark_outdated(artifacts, write_figure(artifacts, "A1", "old"))
    assert files(artifacts) == before
    assert len(references(artifacts)) == 2


def test_other_results_are_told_and_made_again(artifacts: Artifacts) -> None:
    mark_outdated(artifacts, write_figure(artifacts, "A1", "new"))
    claims, page = files(artifacts)
    told = {row["claim"]: row["outdated"] for row in csv.DictReader(claims.splitlines())}
    assert told["one, two"].startswith("A1 was made again with other results")
    assert told["three"] == ""
    assert page.count("Outdated: the table and the figure of A1") == 1
    assert page.endswith("<p>rest</p>")
    assert references(artifacts) == []
    # A second figure is told too, and the first one only once.
    mark_outdated(artifacts, write_figure(artifacts, "B1", "new"))
    mark_outdated(artifacts, write_figure(artifacts, "A1", "newer"))
    claims, page = files(artifacts)
    assert page.count("Outdated: the table and the figure of A1") == 1
    assert page.count("Outdated: the table and the figure of B1") == 1
    assert all(row["outdated"] for row in csv.DictReader(claims.splitlines()))


def test_the_same_results_with_other_bits_are_told(artifacts: Artifacts) -> None:
    """A lost payload was made again on another device. The recipes are the same."""
    mark_outdated(artifacts, write_figure(artifacts, "A1", "old", content="2"))
    claims, page = files(artifacts)
    told = {row["claim"]: row["outdated"] for row in csv.DictReader(claims.splitlines())}
    assert told["one, two"].startswith("A1 was made again with other results")
    assert page.count("Outdated: the table and the figure of A1") == 1
    assert references(artifacts) == []


def test_files_that_are_written_anew_are_forgotten(artifacts: Artifacts) -> None:
    mark_outdated(artifacts, write_figure(artifacts, "A1", "new"))
    for kind in ("claims", "report"):
        forget_marks(artifacts, {"stage": kind, "label": "s"})
    assert list((artifacts.root).rglob("*.outdated")) == []
    before = files(artifacts)
    mark_outdated(artifacts, write_figure(artifacts, "B1", "new"))
    assert files(artifacts) == before
