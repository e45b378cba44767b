"""Marks in the claims and the page of a study, where a table and a figure were made again without them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from robustfeatures.files import read_json, write_atomically
from robustfeatures.pipeline.store.references import Artifacts, read_content

# A reference that is set aside ends in this, not in `.json`: its files show older results of an experiment.
OUTDATED = ".outdated"
# The place of the notices on the page.
NOTICES = "<!-- notices -->"
# The column that a marked claims.csv has beside the others.
COLUMN = "outdated"


def mark_outdated(artifacts: Artifacts, artifact: str) -> None:
    """Mark the claims and the page of a study if they show other results than a table or figure that was just written.

    `artifact` is the table or figure, whose reference is written. The reference of a marked file is set aside, so that
    the next run of the whole study makes the file again.
    """
    written = artifacts.reference(artifact)
    record, contents = (read_json(written)[name] for name in ("recipe", "contents"))
    contents = {**contents, artifact: read_content(written)}
    if record["stage"] not in ("table", "figure"):
        return
    (part,) = record["parts"]
    label = record["study"]
    for kind, mark in (("claims", _mark_claims), ("report", _mark_page)):
        for reference in (*artifacts.builds(kind, label), *set_aside(artifacts, kind, label)):
            try:
                found = read_json(reference)
                shown, before = found["recipe"], found.get("contents", {})
            except (ValueError, KeyError, TypeError):
                # A damaged reference stands for nothing.
                continue
            same = all(before[name] == content for name, content in contents.items() if name in before)
            if same and _shows(shown, artifact, record):
                continue
            (output,) = shown["outputs"]
            path = artifacts.root.parent / output
            if path.exists():
                marked = mark(path.read_text(encoding="utf-8"), part["id"], record["study"])
                write_atomically(path, marked.encode())
            reference.rename(reference.with_suffix(OUTDATED))


def forget_marks(artifacts: Artifacts, record: Mapping[str, Any]) -> None:
    """Remove the references of a view that were set aside, once its files are written anew."""
    for reference in set_aside(artifacts, record["stage"], record["label"]):
        reference.unlink()


def set_aside(artifacts: Artifacts, kind: str, label: str) -> list[Path]:
    """The references of a claims file or a page that are set aside, because it shows older results."""
    found = sorted((artifacts.root / kind).glob(f"*{OUTDATED}"))
    return [path for path in found if path.stem.rpartition("-")[0] == label]


def _shows(shown: Mapping[str, Any], artifact: str, record: Mapping[str, Any]) -> bool:
    """Whether the claims or the page with the record `shown` come from the same results as a table or figure."""
    (part,) = record["parts"]
    if shown["stage"] == "report":
        beside = [view["artifact"] for view in shown["views"] if view["experiments"] == [part["id"]]]
        return artifact in beside or not any(each.startswith(f"{record['stage']}/") for each in beside)
    before = [each for each in shown["parts"] if each["id"] == part["id"]]
    return not before or (before == [part] and shown["published_setting"] == record["published_setting"])


def _mark_page(page: str, experiment: str, study: str) -> str:
    """The page with a notice at its top; there is one per experiment."""
    begin = f'<p class="notice" data-experiment="{escape(experiment)}">'
    if begin in page:
        return page
    notice = (
        f"{begin}Outdated: the table and the figure of {escape(experiment)} were made again after a change, and this "
        f"page was not. To make it again: <code>snakemake --cores all --config study={escape(study)}</code></p>"
    )
    return page.replace(NOTICES, f"{NOTICES}\n{notice}", 1)


def _mark_claims(claims: str, experiment: str, study: str) -> str:
    """The claims with a last column that says which rows are outdated, and how to make them again."""
    rows = list(csv.DictReader(io.StringIO(claims)))
    for row in rows:
        if row["experiment"] == experiment:
            row[COLUMN] = (
                f"{experiment} was made again with other results; snakemake --cores all --config study={study}"
            )
    written = io.StringIO()
    columns = [*dict.fromkeys([*next(csv.reader(io.StringIO(claims))), COLUMN])]
    writer = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()
