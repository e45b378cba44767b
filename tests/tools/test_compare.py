"""Studies side by side: values with intervals and differences, and verdicts that differ."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from robustfeatures.errors import UserError
from robustfeatures.files import write_json
from robustfeatures.pipeline.report.outdated import _mark_claims
from robustfeatures.tools.compare import compare


def write_study(folder: Path, rows: list[tuple[str, float, float]], verdicts: dict[str, str]) -> None:
    """A study with the accuracies (row, eps, accuracy) of A1, and a verdict per claim."""
    (folder / "tables").mkdir(parents=True)
    table = pd.DataFrame(rows, columns=["row", "eps", "accuracy"])
    table["accuracy_low"], table["accuracy_high"], table["seeds"] = table["accuracy"] - 1, table["accuracy"] + 1, 2
    table.to_csv(folder / "tables" / "A1.csv", index=False)
    about = {"experiment": "A1", "setting": None, "source": "s", "control": False}
    numbers = {"value": 2.5, "low": 1.0, "high": 4.0, "interval": "seeds"}
    claims = [{**about, "claim": claim, "verdict": verdict, **numbers} for claim, verdict in verdicts.items()]
    pd.DataFrame(claims).to_csv(folder / "claims.csv", index=False)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path / "one", [("D", 0.0, 90.0), ("D", 0.5, 10.0), ("D_R", 0.0, 80.0)], {"a": "held", "b": "held"})
    write_study(tmp_path / "two", [("D", 0.5, 12.5), ("D", 0.0, 90.0), ("x<y", 0.0, 1.0)], {"b": "undecided"})
    write_study(tmp_path / "three", [("x<y", 0.0, 2.0)], {"a": "held"})
    return tmp_path


def test_values_and_verdicts_stand_side_by_side(results: Path) -> None:
    out = results / "compared"
    lines = list(compare(["one", "two", "three"], results, out))
    assert lines == [
        "3 values and 2 claims that at least two studies share",
        "verdicts that differ: 1",
        str(out / "index.html"),
    ]
    values = pd.read_csv(out / "values.csv").set_index("row")
    assert list(values.index) == ["row D, eps 0", "row D, eps 0.5", "row x<y, eps 0"]
    assert list(values["difference_two"].iloc[:2]) == [0.0, 2.5]
    assert list(values.loc["row D, eps 0.5", ["one", "one_low", "one_high", "two"]]) == [10.0, 9.0, 11.0, 12.5]
    assert pd.isna(values.loc["row x<y, eps 0", "one"])
    claims = pd.read_csv(out / "claims.csv").set_index("claim")
    assert list(claims.loc["b", ["one", "two", "differs"]]) == ["held", "undecided", True]
    assert list(claims.loc["a", ["one", "three", "differs"]]) == ["held", "held", False]
    page = (out / "index.html").read_text()
    assert "1 of 2 verdicts differ" in page
    assert "row x&lt;y, eps 0" in page
    assert "nan" not in page.replace("Nan", "")


def test_numbers_of_images_do_not_tell_rows_apart_but_their_names_do(results: Path) -> None:
    """B1 counts the images of a probe, D3 names those of an evaluation."""
    for study, images in (("one", [100, 20]), ("two", [300, 60])):
        tables = results / study / "tables"
        (tables / "A1.csv").unlink()
        values = {"accuracy": [90.0, 50.0], "accuracy_low": [80.0, 40.0], "accuracy_high": [95.0, 60.0], "seeds": 2}
        counted = {"row": "pathway 1", "probe": ["train", "D"], "images": images, **values}
        named = {"row": "standard", "images": ["test images", "robust"], **values}
        pd.DataFrame(counted).to_csv(tables / "B1.csv", index=False)
        pd.DataFrame(named).to_csv(tables / "D3.csv", index=False)
    list(compare(["one", "two"], results, results / "compared"))
    values = pd.read_csv(results / "compared" / "values.csv")
    assert list(values["row"]) == [
        "row pathway 1, probe train",
        "row pathway 1, probe D",
        "row standard, images test images",
        "row standard, images robust",
    ]


def copy_table(results: Path, study: str, name: str) -> Path:
    tables = results / study / "tables"
    return Path(shutil.copy(tables / "A1.csv", tables / name))


def write_page(results: Path, study: str, *experiments: str, suffix: str = ".json") -> Path:
    """The reference of the page of a study."""
    page = results / "artifacts" / "report" / f"{study}-{'0' * 16}{suffix}"
    write_json(page, {"recipe": {"parts": [{"id": each} for each in experiments]}})
    return page


@pytest.mark.parametrize("suffix", [".json", ".outdated"])
def test_tables_that_a_study_has_no_more_are_left_out(results: Path, suffix: str) -> None:
    """Of an experiment that was removed, or that the code no longer has, and files of somebody else."""
    left = [copy_table(results, "one", name) for name in ("A1 edited.csv", "A7.csv", "Z9.csv")]
    new = copy_table(results, "one", "A2.csv")
    for name in ("A1 edited.csv", "A2.csv", "A7.csv", "Z9.csv"):
        copy_table(results, "two", name)
    page = write_page(results, "one", "A1", suffix=suffix)
    write_page(results, "two", "A1", "A2", "A7")
    # A2 was added to the study, and its table made alone.
    for path, moment in ((left[1], 1), (page, 2), (new, 3)):
        os.utime(path, (moment, moment))
    lines = list(compare(["one", "two"], results, results / "compared"))
    assert list(pd.read_csv(results / "compared" / "values.csv")["experiment"].unique()) == ["A1", "A2"]
    named = [f"left out: {path}, because one has no experiment {path.stem}" for path in left]
    assert [line for line in lines if line.startswith("left out: ") and "/one/" in line] == named


def test_outdated_verdicts_are_marked(results: Path) -> None:
    path = results / "two" / "claims.csv"
    path.write_text(_mark_claims(path.read_text(), "A1", "two"))
    lines = list(compare(["one", "two"], results, results / "compared"))
    remedy = "snakemake --cores all --config study=two"
    assert f"outdated verdicts: those of two on A1; {remedy}" in lines
    claims = pd.read_csv(results / "compared" / "claims.csv", keep_default_na=False)
    assert list(claims["one_outdated"]) == [""]
    assert list(claims["two_outdated"]) == [f"A1 was made again with other results; {remedy}"]
    page = (results / "compared" / "index.html").read_text()
    assert '<p class="notice">Outdated: two has newer values of A1 than its verdicts are from.' in page
    assert page.count("(outdated)") == 1


@pytest.mark.parametrize(
    "name",
    ["one_low", "one_high", "one_value", "difference_two", "experiment", "row", "quantity", "claim", "differs"],
)
def test_studies_that_are_called_as_columns_are(results: Path, name: str) -> None:
    shutil.copytree(results / "one", results / name)
    with pytest.raises(UserError, match=r"^compare: two columns would be called [a-z_]+; give a study another name"):
        list(compare(["one", "two", name], results, results / "compared"))
    assert not (results / "compared").exists()


def test_a_comparison_is_no_study(results: Path) -> None:
    list(compare(["one", "two"], results, results / "compared-one-two"))
    with pytest.raises(
        UserError, match=r"compared-one-two: this study has no results here \(known: one, three, two\)$"
    ):
        list(compare(["one", "compared-one-two"], results, results / "compared"))


def test_only_an_earlier_comparison_is_overwritten(results: Path) -> None:
    for _ in range(2):
        list(compare(["one", "two"], results, results / "compared"))
    before = (results / "two" / "claims.csv").read_bytes()
    with pytest.raises(UserError, match=r"^--out: .*two holds other files; choose a new folder$"):
        list(compare(["one", "two"], results, results / "two"))
    assert (results / "two" / "claims.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("studies", "message"),
    [
        (["one"], "at least two"),
        (["one", "one"], "at least two"),
        (["one", "tow"], r"tow: .* \(did you mean 'two'\?\)"),
        (["one/", "two"], r"one/: .* \(did you mean 'one'\?\)"),
        (["one", "./two"], r"\./two: .* \(did you mean 'two'\?\)"),
    ],
)
def test_refused_in_one_line(results: Path, studies: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(compare(studies, results, results / "compared"))
    assert not (results / "compared").exists()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b'"'])
@pytest.mark.parametrize("name", ["two/tables/A1.csv", "two/claims.csv", "artifacts/report/two-0123456789abcdef.json"])
def test_a_damaged_file_is_one_line(results: Path, name: str, damage: bytes) -> None:
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file without the columns of claims is no claims file, and its folder no study.
    claims = path.read_bytes() + b'"' if path.name == "claims.csv" else b""
    path.write_bytes(claims or damage)
    with pytest.raises(UserError, match=rf"^{path}: damaged; run snakemake again, and it will be made anew$"):
        list(compare(["one", "two"], results, results / "compared"))
    assert not (results / "compared").exists()
