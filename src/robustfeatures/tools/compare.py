"""Compare studies: the values and the verdicts of the experiments that they share, as CSV and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

import pandas as pd

from robustfeatures.errors import UserError, suggest
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.files import write_atomically
from robustfeatures.pipeline.report.numbers import format_number
from robustfeatures.pipeline.report.tables import BESIDE, measured_columns
from robustfeatures.pipeline.report.verdicts import SENTENCE
from robustfeatures.pipeline.report.views.report import page_templates, read_claims

# What identifies a measured value, and a claim; their other columns are those of each study.
VALUE = ["experiment", "row", "quantity"]
CLAIM = [*SENTENCE, "setting"]
INTERVAL = ("low", "high")


def compare(studies: Sequence[str], results: Path, out: Path) -> Iterator[str]:
    """Write `index.html`, `values.csv` and `claims.csv` to the folder `out`, and yield lines on what they hold.

    Each value and each claim has a line, with one group of columns per study. Differences are from the first study.

    Raises:
        UserError: there are fewer than two studies, or one has no results.
    """
    if len(set(studies)) < 2 or len(set(studies)) < len(studies):
        raise UserError("compare: name at least two different studies")
    for study in studies:
        if not (results / study / "claims.csv").is_file():
            known = suggest(study, (path.parent.name for path in results.glob("*/claims.csv")))
            raise UserError(f"{results / study}: this study has no results here{known}")
    values = compare_values({study: results / study / "tables" for study in studies})
    claims = compare_claims({study: results / study / "claims.csv" for study in studies})
    page = (
        page_templates()
        .get_template("comparison.html")
        .render(
            studies=studies,
            values={
                experiment: rows.to_dict("records") for experiment, rows in values.groupby("experiment", sort=False)
            },
            claims=claims.to_dict("records"),
            titles={experiment: load_experiment(experiment).title for experiment in values["experiment"].unique()},
        )
    )
    for name, table in (("values.csv", values), ("claims.csv", claims)):
        write_atomically(out / name, table.to_csv(index=False, lineterminator="\n").encode())
    write_atomically(out / "index.html", page.encode())
    yield f"{len(values)} values and {len(claims)} claims that at least two studies share"
    yield f"verdicts that differ: {int(claims['differs'].sum())}"
    yield str(out / "index.html")


def compare_values(folders: Mapping[str, Path]) -> pd.DataFrame:
    """The measured values of the tables in the folder of each study.

    Columns: those of `VALUE`, then for each study `<study>` with `<study>_low` and `<study>_high`, and for each study
    but the first `difference_<study>`. Only values of at least two studies are kept.
    """
    found = []
    for study, folder in folders.items():
        tables = [read_values(path) for path in sorted(folder.glob("*.csv"))]
        rows = pd.concat([pd.DataFrame(columns=[*VALUE, "value", *INTERVAL]), *tables], ignore_index=True)
        names = {"value": study, **{end: f"{study}_{end}" for end in INTERVAL}}
        found.append(rows.drop_duplicates(VALUE).rename(columns=names))
    shared = _join(found, VALUE, list(folders))
    first, *others = folders
    for study in others:
        shared[f"difference_{study}"] = (shared[study] - shared[first]).astype(float).round(10)
    return shared


def read_values(path: Path) -> pd.DataFrame:
    """The values of one table, one below the other: columns experiment, row, quantity, value, low, high."""
    table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    names = measured_columns(table)
    beside = {each.format(name) for name in names for each in BESIDE}
    keys = [name for name in table.columns if name not in {"seeds", *names, *beside}]
    rows = table[keys].apply(lambda row: ", ".join(f"{key} {format_number(row[key])}" for key in keys), axis=1)
    missing = pd.Series(float("nan"), table.index)
    return (
        pd.concat(
            pd.DataFrame(
                {
                    "experiment": path.stem,
                    "row": rows,
                    "quantity": name,
                    "value": table[name].astype(float),
                    **{end: table.get(f"{name}_{end}", missing).astype(float) for end in INTERVAL},
                }
            )
            for name in names
        )
        if names and len(table)
        else pd.DataFrame()
    )


def compare_claims(files: Mapping[str, Path]) -> pd.DataFrame:
    """The claims of the claims.csv of each study.

    Columns: those of `CLAIM`, then for each study `<study>` (the verdict) with `<study>_value`, `<study>_low` and
    `<study>_high`, and `differs`: whether the verdicts are not all the same. Only claims of two studies are kept.
    """
    found = []
    for study, path in files.items():
        rows = read_claims(path)[[*CLAIM, "verdict", "value", *INTERVAL]].drop_duplicates(CLAIM)
        names = {"verdict": study, **{name: f"{study}_{name}" for name in ("value", *INTERVAL)}}
        found.append(rows.rename(columns=names))
    shared = _join(found, CLAIM, list(files))
    return shared.assign(differs=shared[list(files)].nunique(axis=1) > 1)


def _join(tables: Sequence[pd.DataFrame], keys: list[str], studies: list[str]) -> pd.DataFrame:
    """The tables side by side, in order of appearance; lines of one study alone are left out."""
    joined = reduce(lambda left, right: left.merge(right, on=keys, how="outer", sort=False), tables)
    order = pd.concat([table[keys] for table in tables]).drop_duplicates()
    joined = order.merge(joined, on=keys, how="left")
    return joined[joined[studies].notna().sum(axis=1) > 1].reset_index(drop=True)
