"""A figure: one experiment as a bitmap and as a vector graphic, with its caption."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from robustfeatures.errors import make_printable
from robustfeatures.experiments.shared.plots.style import DPI
from robustfeatures.pipeline.report.alternative_text import describe_figure
from robustfeatures.pipeline.report.building import ViewFiles
from robustfeatures.pipeline.report.provenance import describe_provenance, describe_what_is_shown, make_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robustfeatures.pipeline.report.building import ViewJob

# Characters of a warning per inch of the figure, and how many warnings it shows; the caption has all of them.
PER_INCH = 15
MOST_WARNINGS = 3


def make(view: ViewJob) -> ViewFiles:
    """The contents of `<id>.png`, `<id>.pdf` and `<id>.txt` by suffix. The same rows give the same bytes."""
    ((experiment, results),) = view.experiments()
    assert experiment.figure is not None
    figure = experiment.figure(results)
    made = describe_provenance(experiment, results, view.record, view.recipes())
    words = {
        "caption": describe_what_is_shown(experiment, results),
        "alternative_text": f"{experiment.id}: {experiment.title}. {describe_figure(figure)}",
        "warnings": list(results.notes),
        "provenance": made,
    }
    contents = {**render_figure(figure, results.notes), ".txt": make_caption(experiment, results, made).encode()}
    return ViewFiles(contents, words)


def render_figure(figure: Figure, notes: Sequence[str]) -> dict[str, bytes]:
    """The figure as `.png` and `.pdf`, with the warnings below it."""
    shown = [f"Warning: {make_printable(note)}" for note in notes[:MOST_WARNINGS]]
    if len(notes) > MOST_WARNINGS:
        shown.append(f"Warnings that stand in the caption alone: {len(notes) - MOST_WARNINGS}")
    warnings = [textwrap.fill(line, int(PER_INCH * figure.get_figwidth())) for line in shown]
    if warnings:
        figure.text(0.02, -0.02, "\n".join(warnings), va="top", fontsize=8, fontweight="bold")
    contents = {}
    for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None})):
        buffer = io.BytesIO()
        around = "tight" if warnings else None
        figure.savefig(buffer, format=suffix[1:], dpi=DPI, metadata=metadata, bbox_inches=around)
        contents[suffix] = buffer.getvalue()
    return contents
