"""Stage table: the rows of one experiment as CSV for programs, Markdown and LaTeX for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.errors import make_printable
from robustfeatures.pipeline.report.making import making
from robustfeatures.pipeline.report.tables import as_latex, as_markdown, plain, sheets

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.pipeline.report.building import ViewJob


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `<id>.csv`, `<id>.md` and `<id>.tex` by suffix."""
    ((experiment, results),) = view.experiments()
    assert experiment.table is not None
    table = experiment.table(results)
    made = making(experiment, results, view.record, view.recipes())
    return {
        ".csv": table.to_csv(index=False, lineterminator="\n").encode(),
        ".md": markdown(experiment, results, table, made).encode(),
        ".tex": latex(experiment, results, table, made).encode(),
    }


def markdown(experiment: Experiment, results: Results, table: pd.DataFrame, made: Sequence[str]) -> str:
    """What was measured, then what the paper prints, labelled as such, then how it was made."""
    parts = [f"# {experiment.id}: {experiment.title}"]
    parts += [f"**Warning: {plain(note)}**" for note in results.notes]
    for sheet in sheets(table, results, experiment.units):
        parts += [plain(sheet.title), as_markdown(sheet.cells)]
    return "\n\n".join([*parts, "\n".join(f"- {plain(line)}" for line in made)]) + "\n"


def latex(experiment: Experiment, results: Results, table: pd.DataFrame, made: Sequence[str]) -> str:
    """One tabular per table of the Markdown; all else in comments, so that the file can be read into a document."""
    said = [
        f"{experiment.id}: {experiment.title}",
        *(f"Warning: {make_printable(note)}" for note in results.notes),
        *made,
    ]
    parts = ["\n".join(f"% {line}" for line in [*said, "Needs the package booktabs."])]
    parts += [f"% {sheet.title}\n{as_latex(sheet.cells)}" for sheet in sheets(table, results, experiment.units)]
    return "\n".join(parts)
