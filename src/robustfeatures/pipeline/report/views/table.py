"""A table: the rows of one experiment as CSV for programs, as Markdown and LaTeX for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import make_printable
from robustfeatures.pipeline.report.building import ViewFiles
from robustfeatures.pipeline.report.provenance import describe_provenance
from robustfeatures.pipeline.report.tables import (
    Sheet,
    as_latex,
    as_markdown,
    escape_markdown,
    is_numeric,
    limit_intervals,
    make_sheets,
)

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.pipeline.report.building import ViewJob


def make(view: ViewJob) -> ViewFiles:
    """The contents of `<id>.csv`, `<id>.md` and `<id>.tex` by suffix. Intervals of shares stay within 0 to 100 %."""
    ((experiment, results),) = view.experiments()
    assert experiment.table is not None
    table = limit_intervals(experiment.table(results), experiment.units)
    sheets = make_sheets(table, results, experiment)
    made = describe_provenance(experiment, results, view.record, view.recipes())
    contents = {
        ".csv": table.to_csv(index=False, lineterminator="\n").encode(),
        ".md": render_markdown(experiment, results, sheets, made).encode(),
        ".tex": render_latex(experiment, results, sheets, made).encode(),
    }
    described = [_describe_sheet(sheet) for sheet in sheets]
    return ViewFiles(contents, {"sheets": described, "warnings": list(results.notes), "provenance": made})


def _describe_sheet(sheet: Sheet) -> dict[str, Any]:
    """The title, the columns and the rows of a table as JSON values."""
    columns = [{"name": name, "numeric": is_numeric(sheet.cells[name])} for name in sheet.cells.columns]
    return {"title": sheet.title, "columns": columns, "rows": sheet.cells.to_numpy().tolist()}


def render_markdown(experiment: Experiment, results: Results, sheets: Sequence[Sheet], made: Sequence[str]) -> str:
    """The measured values, then the published ones, labelled as such, then the lines of the provenance (`made`)."""
    parts = [f"# {experiment.id}: {experiment.title}"]
    parts += [f"**Warning: {escape_markdown(note)}**" for note in results.notes]
    for sheet in sheets:
        parts += [escape_markdown(sheet.title), as_markdown(sheet.cells)]
    return "\n\n".join([*parts, "\n".join(f"- {escape_markdown(line)}" for line in made)]) + "\n"


def render_latex(experiment: Experiment, results: Results, sheets: Sequence[Sheet], made: Sequence[str]) -> str:
    """One tabular per table of the Markdown. Everything else is a comment, so that a document can input the file."""
    said = [
        f"{experiment.id}: {experiment.title}",
        *(f"Warning: {make_printable(note)}" for note in results.notes),
        *made,
    ]
    parts = ["\n".join(f"% {line}" for line in [*said, "Needs the package booktabs."])]
    parts += [f"% {sheet.title}\n{as_latex(sheet.cells)}" for sheet in sheets]
    return "\n".join(parts)
