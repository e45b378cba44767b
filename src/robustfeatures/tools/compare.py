"""Compare studies: the values and the verdicts of the experiments that they share, as CSV and on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from robustfeatures.errors import UserError, join_words, suggest
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.files import read_json, write_atomically
from robustfeatures.pipeline.report.numbers import format_number
from robustfeatures.pipeline.report.outdated import COLUMN, set_aside
from robustfeatures.pipeline.report.tables import BESIDE, measured_columns
from robustfeatures.pipeline.report.verdicts import SENTENCE
from robustfeatures.pipeline.report.views.report import page_templates, read_claims
from robustfeatures.pipeline.store.references import Artifacts

# What identifies a measured value, and a claim; their other columns are those of each study.
VALUE = ["experiment", "row", "quantity"]
CLAIM = [*SENTENCE, "setting"]
INTERVAL = ("low", "high")
CLAIM_NUMBERS = ("value", *INTERVAL)
DIFFERS = "differs"
PAGE, VALUES, CLAIMS = FILES = ("index.html", "values.csv", "claims.csv")


def compare(studies: Sequence[str], results: Path, out: Path) -> Iterator[str]:
    """Write `FILES` to the folder `out`, and yield lines on what they hold.

    Each value and each claim has a line, with one group of columns per study. Differences are from the first study.
    Tables of experiments that a study has no more are left out, and named.

    Raises:
        UserError: there are fewer than two studies, one has no results, a file of one is damaged, two columns would
            have the same name, or `out` holds other files than those of an earlier comparison.
    """
    if len(set(studies)) < 2 or len(set(studies)) < len(studies):
        raise UserError("compare: name at least two different studies")
    known = [path.name for path in results.glob("*") if _has_claims(path)]
    for study in studies:
        if study not in known:
            raise UserError(f"{results}/{study}: this study has no results here{suggest(study, known)}")
    _check_columns(studies)
    if out.exists() and not {path.name for path in out.iterdir()} <= {*FILES}:
        raise UserError(f"--out: {out} holds other files; choose a new folder")
    tables = {study: sorted((results / study / "tables").glob("*.csv")) for study in studies}
    shown = {study: [path for path in tables[study] if _is_shown(path, study, results)] for study in studies}
    values = compare_values(shown)
    claims = compare_claims({study: results / study / "claims.csv" for study in studies})
    outdated = _find_outdated(claims, studies)
    page = (
        page_templates()
        .get_template("comparison.html")
        .render(
            studies=studies,
            values={
                experiment: rows.to_dict("records") for experiment, rows in values.groupby("experiment", sort=False)
            },
            claims=claims.to_dict("records"),
            outdated=outdated,
            titles={experiment: load_experiment(experiment).title for experiment in values["experiment"].unique()},
        )
    )
    for name, table in ((VALUES, values), (CLAIMS, claims)):
        write_atomically(out / name, table.to_csv(index=False, lineterminator="\n").encode())
    write_atomically(out / PAGE, page.encode())
    yield f"{len(values)} values and {len(claims)} claims that at least two studies share"
    yield f"verdicts that differ: {int(claims[DIFFERS].sum())}"
    for study in studies:
        for path in tables[study]:
            if path not in shown[study]:
                yield f"left out: {path}, because {study} has no experiment {path.stem}"
    for study, (experiments, remedy) in outdated.items():
        yield f"outdated verdicts: those of {study} on {join_words(experiments)}; {remedy}"
    yield str(out / PAGE)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged; run snakemake again, and it will be made anew") from error


def _has_claims(folder: Path) -> bool:
    """Whether a folder has the claims of a study; that of an earlier comparison has others."""
    try:
        with (folder / "claims.csv").open(encoding="utf-8") as file:
            columns = file.readline().rstrip("\n").split(",")
    except (OSError, UnicodeDecodeError):
        return False
    return {*CLAIM, *CLAIM_NUMBERS, "verdict"} <= set(columns)


def _check_columns(studies: Sequence[str]) -> None:
    """Check that the columns of each file will have different names.

    Raises:
        UserError: two will not, because studies are called as columns are.
    """
    values = [*VALUE, *(name for study in studies for name in _value_columns(study).values())]
    values += [f"difference_{study}" for study in studies[1:]]
    claims = [*CLAIM, *(name for study in studies for name in _claim_columns(study).values()), DIFFERS]
    for columns in (values, claims):
        for name, count in Counter(columns).items():
            if count > 1:
                raise UserError(f"compare: two columns would be called {name}; give a study another name and build it")


def _value_columns(study: str) -> dict[str, str]:
    return {"value": study, **{end: f"{study}_{end}" for end in INTERVAL}}


def _claim_columns(study: str) -> dict[str, str]:
    return {"verdict": study, **{name: f"{study}_{name}" for name in (*CLAIM_NUMBERS, COLUMN)}}


def _is_shown(table: Path, study: str, results: Path) -> bool:
    """Whether a table is one of the study as it is now: its page shows the experiment, or is older than the table."""
    if table.stem not in experiment_modules():
        return False
    artifacts = Artifacts(results / "artifacts")
    pages = [*artifacts.builds("report", study), *set_aside(artifacts, "report", study)]
    if not pages:
        return True
    newest = max(pages, key=lambda path: path.stat().st_mtime_ns)
    with _explain_damage(newest):
        ids = {part["id"] for part in read_json(newest)["recipe"]["parts"]}
    return table.stem in ids or table.stat().st_mtime_ns > newest.stat().st_mtime_ns


def _find_outdated(claims: pd.DataFrame, studies: Sequence[str]) -> dict[str, tuple[list[str], str]]:
    """The experiments of each study whose verdicts are older than their values, and how to make these again."""
    found = {}
    for study in studies:
        marks = claims[[CLAIM[0], f"{study}_{COLUMN}"]].dropna()
        rows = marks[marks[f"{study}_{COLUMN}"] != ""]
        if len(rows):
            remedy = rows[f"{study}_{COLUMN}"].iloc[0].rpartition("; ")[2]
            found[study] = (list(rows[CLAIM[0]].unique()), remedy)
    return found


def compare_values(files: Mapping[str, Sequence[Path]]) -> pd.DataFrame:
    """The measured values of the tables of each study.

    Columns: those of `VALUE`, then for each study `<study>` with `<study>_low` and `<study>_high`, and for each study
    but the first `difference_<study>`. Only values of at least two studies are kept.
    """
    found = []
    for study, paths in files.items():
        tables = []
        for path in paths:
            with _explain_damage(path):
                tables.append(read_values(path))
        rows = pd.concat([pd.DataFrame(columns=[*VALUE, "value", *INTERVAL]), *tables], ignore_index=True)
        found.append(rows.drop_duplicates(VALUE).rename(columns=_value_columns(study)))
    shared = _join(found, VALUE, list(files))
    first, *others = files
    for study in others:
        shared[f"difference_{study}"] = (shared[study] - shared[first]).astype(float).round(10)
    return shared


def read_values(path: Path) -> pd.DataFrame:
    """The values of one table, one below the other: columns experiment, row, quantity, value, low, high."""
    table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    names = measured_columns(table)
    beside = {each.format(name) for name in names for each in BESIDE}
    # B1 and B4 count the images of a row; D3 and A4 name them, which tells rows apart.
    counted = {name for name in ("seeds", "images") if name in table and is_numeric_dtype(table[name])}
    keys = [name for name in table.columns if name not in {*counted, *names, *beside}]
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

    Columns: those of `CLAIM`, then for each study `<study>` (the verdict) with `<study>_value`, `<study>_low`,
    `<study>_high` and `<study>_outdated` (why the verdict is older than the values; mostly empty), and `differs`:
    whether the verdicts are not all the same. Only claims of two studies are kept.
    """
    found = []
    for study, path in files.items():
        with _explain_damage(path):
            rows = read_claims(path)
        # Only claims that were marked have the column.
        rows = rows.reindex(columns=[*CLAIM, "verdict", *CLAIM_NUMBERS, COLUMN])
        rows[COLUMN] = rows[COLUMN].astype(object).fillna("")
        found.append(rows.drop_duplicates(CLAIM).rename(columns=_claim_columns(study)))
    shared = _join(found, CLAIM, list(files))
    return shared.assign(**{DIFFERS: shared[list(files)].nunique(axis=1) > 1})


def _join(tables: Sequence[pd.DataFrame], keys: list[str], studies: list[str]) -> pd.DataFrame:
    """The tables side by side, in order of appearance; lines of one study alone are left out."""
    joined = reduce(lambda left, right: left.merge(right, on=keys, how="outer", sort=False), tables)
    order = pd.concat([table[keys] for table in tables]).drop_duplicates()
    joined = order.merge(joined, on=keys, how="left")
    return joined[joined[studies].notna().sum(axis=1) > 1].reset_index(drop=True)
