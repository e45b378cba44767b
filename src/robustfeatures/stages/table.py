"""Stage table: the rows of one experiment as CSV for programs and Markdown for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from robustfeatures.errors import printable

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.views import ViewJob


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `<id>.csv` and `<id>.md` by suffix."""
    ((experiment, results),) = view.experiments()
    assert experiment.table is not None
    table = experiment.table(results)
    return {
        ".csv": table.to_csv(index=False, lineterminator="\n").encode(),
        ".md": markdown(
            experiment, results, table, study=f"{view.record['title']}, {view.record['precision']}"
        ).encode(),
    }


def markdown(experiment: Experiment, results: Results, table: pd.DataFrame, *, study: str) -> str:
    """The measured table, and below it the published one, labelled as such."""
    measured = table.drop(columns=["accuracy_std", "published"] if table["published"].isna().all() else "accuracy_std")
    measured["accuracy"] = [
        f"{mean:.2f}" if pd.isna(std) else f"{mean:.2f} ± {std:.2f}"
        for mean, std in zip(table["accuracy"], table["accuracy_std"], strict=True)
    ]
    seeds = table["seeds"].max()
    lines = [
        f"# {experiment.id}: {experiment.title}",
        "",
        f"Measured: {plain(study)}. Accuracy in percent, mean ± standard deviation over {seeds} seeds; eps 0 is clean.",
        "",
        wide(measured.drop(columns="seeds"), "accuracy"),
    ]
    if results.published is not None:
        lines += [
            "",
            f"Published ({results.published_source} of {experiment.paper}; {results.published_setting}):",
            "",
            wide(results.published, "accuracy"),
        ]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Markdown that shows `text` as it is, on one line."""
    return re.sub(r"[\\`*_\[\]<>&|#!~$]", r"\\\g<0>", printable(text))


def wide(rows: pd.DataFrame, values: str) -> str:
    """Markdown with one line per row and one column per eps, in order of appearance."""
    index = [column for column in rows.columns if column not in (values, "eps", "published")]
    if rows["eps"].nunique() == 1:
        return str(rows.drop(columns="eps").to_markdown(index=False, disable_numparse=True))
    pivoted = rows.pivot_table(index=index, columns="eps", values=values, aggfunc="first", sort=False)
    pivoted.columns = pd.Index(["clean" if eps == 0 else f"eps {eps:g}" for eps in map(float, pivoted.columns)])
    return str(pivoted.reset_index().to_markdown(index=False, disable_numparse=True))
