"""Tables as cells, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from robustfeatures.errors import make_printable
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.pipeline.report.published_values import place_published
from robustfeatures.pipeline.report.tables import (
    NUMERIC,
    Sheet,
    as_latex,
    as_markdown,
    is_numeric,
    limit_intervals,
    make_sheets,
    measured_columns,
)
from robustfeatures.pipeline.report.views.table import render_latex, render_markdown
from tests.experiments.made_up import make_up, parts
from tests.experiments.shared import test_claims
from tests.experiments.shared import test_summaries as other
from tests.security.hostile import NAMES

UNITS = {"accuracy": "%"}
STUDY = "digits-full"
# Of these the made-up results have no rows, or those of the figure alone; A10 has no table.
NOT_MADE_UP = {"A10", "A12", "A13", "B6", "B7", "C8", "E1", "E3"}
ESCAPED = re.compile(
    r"\\[&%$#_{}]|\\(?:textbackslash|textasciitilde|textasciicircum|space) ?"
    r"|\$(?:\\pm|-|\\times 10\^\{-?\d+\})\$"
)


def sheets_of(table: pd.DataFrame, given: Results, units: Mapping[str, str]) -> list[Sheet]:
    return make_sheets(table, given, replace(load_experiment("A1"), units=units, names={}))


def rows_of(tabular: str) -> tuple[str, list[list[str]]]:
    """The column format and the rows of a tabular with booktabs' rules, cells as LaTeX would read them."""
    lines = tabular.strip().splitlines()
    begin = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", lines[0])
    assert begin is not None
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert (lines[1], lines[3]) == (r"\toprule", r"\midrule")
    rows = []
    for line in [lines[2], *lines[4:-2]]:
        assert line.endswith(r" \\")
        rows.append(re.split(r"(?<!\\)&", line[:-3]))
    return begin[1], [[cell.strip() for cell in row] for row in rows]


def test_tabulars_have_one_cell_per_column() -> None:
    given = test_claims.results(comparable=True)
    table = add_published(summarise_seeds(test_claims.ROWS, ["row", "eps"]), given, ["row", "eps"])
    experiment = load_experiment("A1")
    text = render_latex(experiment, given, make_sheets(table, given, experiment), ["Study: 100 % a study."])
    tabulars = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    read = [rows_of(tabular) for tabular in tabulars]
    assert [len(rows) for _, rows in read] == [1 + 2, 1 + 4, 1 + 6]
    assert read[0][1][0] == ["network", "clean", "clean, published", "eps 0.25", "eps 0.25, published"]
    assert read[0][1][2] == ["adversarial", r"10.00 $\pm$ 10.00", "90.83", r"10.25 $\pm$ 10.00", "82.48"]
    for columns, rows in read:
        assert {len(row) for row in rows} == {len(columns)}
    assert read[1][0] == "llrrrr"
    assert read[1][1][0] == ["network", "eps", r"accuracy (\%)", r"95 \% interval", "published", "difference"]
    assert read[1][1][1] == ["standard", "clean", r"10.00 $\pm$ 10.00", "$-$14.84 to 34.84", "95.25", "$-$85.25"]
    # Everything else is a comment.
    rest = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", text, flags=re.DOTALL)
    assert all(line.startswith("% ") for line in rest.splitlines() if line)


@pytest.mark.parametrize("name", [*NAMES, "two\nlines", "50 % & more_ {x} ~ ^ # $5\\", "-", "3-4"])
def test_names_stay_one_cell(name: str) -> None:
    cells = pd.DataFrame({name: [name, "b"], "value": ["1.00 ± 0.10", "-2.5e-7"]})
    columns, rows = rows_of(as_latex(cells))
    assert columns == "lr"
    assert [len(row) for row in rows] == [2, 2, 2]
    for row in rows:
        for cell in row:
            assert not set(ESCAPED.sub("", cell)) & set("\\{}$&#%_^~")
    assert "$-$" not in rows[1][0]
    assert [row[1] for row in rows] == ["value", r"1.00 $\pm$ 0.10", r"$-$2.5$\times 10^{-7}$"]
    rendered = (
        MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").parse(as_markdown(cells))
    )
    shown = ["".join(part.content for part in token.children or []) for token in rendered if token.type == "inline"]
    assert [part.replace("\xa0", " ").strip() for part in shown] == [
        make_printable(name).strip(),
        "value",
        make_printable(name).strip(),
        "1.00 ± 0.10",
        "b",
        "-2.5e-7",
    ]
    assert not any(token.type.startswith("html") for token in rendered)


def test_a_printed_value_never_stands_beside_two_rows() -> None:
    table = summarise_seeds(other.ROWS, ["row"], values=["radius"])
    both = pd.concat([table, table.assign(row=["d", "e"])])
    with pytest.raises(AssertionError, match="beside both"):
        place_published(both, ["radius"], other.results(comparable=True))


def test_several_quantities_each_have_their_columns() -> None:
    given = replace(other.results(comparable=True), published_source="Table 1")
    values = ["radius", "gap"]
    table = add_published(summarise_seeds(other.ROWS, ["row"], values=values), given, ["row"], values=values)
    assert measured_columns(table) == values
    measured, published = sheets_of(table, given, {"gap": "nats"})
    spread = "Mean ± standard deviation over 3 seeds, 95 % intervals of the mean (Student's t)"
    assert measured.title == f"{spread}, published: Table 1:"
    expected = ["row", "radius", "radius: 95 % interval", "radius: published", "radius: difference", "gap (nats)"]
    assert list(measured.cells.columns) == [*expected, "gap: 95 % interval"]
    a = measured.cells[measured.cells["row"] == "a"].iloc[0]
    assert a["radius"] == "1.00 ± 0.50"
    assert (a["radius: published"], a["radius: difference"]) == ("1.25", "-0.25")
    assert a["gap (nats)"] == "3.0e-7 ± 1.0e-7"
    # The printed row that has no place beside a measured one.
    assert published.cells.to_numpy().tolist() == [["c", "9.000"]]


def test_a_table_of_theory_has_neither_seeds_nor_eps() -> None:
    given = replace(other.results(comparable=False), published=None)
    table = pd.DataFrame({"k": [2, 10], "threshold": [0.5, 1.25e-9], "correlation": [0.9, 0.1]})
    table = table.assign(correlation_low=[0.8, -0.1], correlation_high=[0.95, 0.3])
    (sheet,) = sheets_of(table, given, {})
    assert sheet.title == "95 % intervals:"
    assert sheet.cells.to_numpy().tolist() == [
        ["2", "0.5", "0.9000", "0.8000 to 0.9500"],
        ["10", "1.25e-9", "0.1000", "-0.1000 to 0.3000"],
    ]
    (bare,) = sheets_of(table[["k", "threshold"]], given, {})
    assert bare.title == ""


def test_a_constant_radius_takes_no_column() -> None:
    given = replace(test_claims.results(comparable=False), published=None)
    clean = test_claims.ROWS[test_claims.ROWS["eps"] == 0]
    (sheet,) = sheets_of(summarise_seeds(clean, ["row", "eps"]), given, UNITS)
    assert list(sheet.cells.columns) == ["row", "accuracy (%)", "95 % interval"]
    assert "clean images" in sheet.title
    attacked = test_claims.ROWS[test_claims.ROWS["eps"] > 0]
    (sheet,) = sheets_of(summarise_seeds(attacked, ["row", "eps"]), given, UNITS)
    assert list(sheet.cells["eps"]) == ["0.25", "0.25"]


def test_rows_that_share_their_names_are_all_shown() -> None:
    given = replace(test_claims.results(comparable=False), published=None)
    table = summarise_seeds(test_claims.ROWS, ["row", "eps"])
    twice = pd.concat([table, table.assign(accuracy=1.0)], ignore_index=True)
    (sheet,) = sheets_of(twice, given, UNITS)
    assert len(sheet.cells) == 8


def test_rows_of_other_seeds_say_how_many() -> None:
    given = replace(other.results(comparable=False), published=None)
    table = summarise_seeds(other.ROWS.drop(index=0), ["row"], values=["radius"])
    (sheet,) = sheets_of(table, given, {})
    assert "2 to 3 seeds" in sheet.title
    assert list(sheet.cells["seeds"]) == ["2", "3"]


def test_warnings_stand_above_the_table() -> None:
    noted = replace(test_claims.results(comparable=False), notes=["gradients are masked"])
    table = summarise_seeds(test_claims.ROWS, ["row", "eps"])
    experiment = load_experiment("A1")
    sheets = make_sheets(table, noted, experiment)
    text = render_markdown(experiment, noted, sheets, [])
    assert text.index("**Warning: gradients are masked**") < text.index("|")
    assert "% Warning: gradients are masked\n" in render_latex(experiment, noted, sheets, [])


def test_intervals_of_shares_stay_within_0_and_100() -> None:
    table = pd.DataFrame(
        {
            "row": ["a", "b", "correlation"],
            **{"accuracy": [99.0, 1.0, -3.0], "accuracy_low": [87.0, -2.0, -5.0], "accuracy_high": [111.0, 4.0, -1.0]},
            **{"lowered": [1.0, 2.0, 3.0], "lowered_low": [-1.0, -2.0, 0.0], "lowered_high": [3.0, 6.0, 120.0]},
            "seeds": 4,
        }
    )
    limited = limit_intervals(table, {"accuracy": "%", "lowered": "points"})
    assert list(limited["accuracy_low"]) == [87.0, 0.0, -5.0]
    assert list(limited["accuracy_high"]) == [100.0, 4.0, -1.0]
    assert limited[["lowered", "lowered_low", "lowered_high"]].equals(table[["lowered", "lowered_low", "lowered_high"]])
    # The table that was given stays as it was.
    assert table["accuracy_high"].max() == 111
    (sheet,) = sheets_of(limited, replace(test_claims.results(comparable=False), published=None), UNITS)
    assert "95 % intervals of the mean (Student's t), within 0 to 100 %" in sheet.title
    assert "87.00 to 100.00" in sheet.cells.to_string()


def test_published_values_of_other_settings_stand_beside_ours() -> None:
    printed = pd.DataFrame(
        [
            {"setting": "CIFAR-10", "row": "standard", "eps": 0, "accuracy": 95.3},
            {"setting": "Restricted ImageNet", "row": "standard", "eps": 0, "accuracy": 96.6},
            {"setting": "CIFAR-10", "row": "adversarial", "eps": 0, "accuracy": 90.0},
            {"setting": "CIFAR-10", "row": "D_rand", "eps": 0, "accuracy": 63.3},
        ]
    )
    given = replace(test_claims.results(comparable=False), published=printed, published_source="Table 1")
    table = add_published(summarise_seeds(test_claims.ROWS, ["row", "eps"]), given, ["row", "eps"])
    wide, long, left = make_sheets(table, given, load_experiment("A2"))
    assert wide.title.endswith("published: Table 1, of other data or networks:")
    headings = ["clean", "clean, published for CIFAR-10", "clean, published for Restricted ImageNet", "eps 0.25"]
    assert list(wide.cells.columns) == ["trained on", *headings]
    assert wide.cells.to_numpy().tolist() == [
        ["standard", "10.00 ± 10.00", "95.30", "96.60", "10.25 ± 10.00"],
        ["adversarial", "10.00 ± 10.00", "90.00", "", "10.25 ± 10.00"],
    ]
    assert list(long.cells["published for CIFAR-10"]) == ["95.30", "", "90.00", ""]
    # Nothing is compared with other data.
    assert "difference" not in long.cells
    assert left.cells.to_numpy().tolist() == [["CIFAR-10", "D_rand", "63.30"]]


def test_a_published_value_that_fits_two_rows_stands_beside_none() -> None:
    given = replace(test_claims.results(comparable=False), published=pd.DataFrame([{"row": "a", "radius": 1.25}]))
    table = summarise_seeds(other.ROWS.assign(probe="train"), ["row", "probe"], values=["radius"])
    twice = pd.concat([table, table.assign(probe="test")], ignore_index=True)
    measured, left = sheets_of(twice, given, {})
    assert not any("published" in heading for heading in measured.cells)
    assert left.cells.to_numpy().tolist() == [["a", "1.250"]]


def decimals(cell: str) -> set[int]:
    return {len(number.partition("e")[0].partition(".")[2]) for number in re.findall(r"-?\d[\d.]*(?:e-?\d+)?", cell)}


@pytest.mark.parametrize("identifier", sorted(parts(STUDY).keys() - NOT_MADE_UP))
def test_headings_are_for_people_and_a_column_has_one_precision(identifier: str, tmp_path: Path) -> None:
    experiment, results = make_up(STUDY, identifier, tmp_path, seeds=2)
    assert experiment.table is not None
    table = experiment.table(replace(results, comparable=False))
    for sheet in make_sheets(table, replace(results, comparable=False), experiment):
        headings = list(sheet.cells.columns)
        assert len(set(headings)) == len(headings)
        assert not any("_" in heading for heading in headings)
        assert "row" not in headings
        for heading in headings:
            cells = [cell for cell in sheet.cells[heading] if cell]
            if "±" in "".join(cells) and not any("e" in cell for cell in cells):
                assert is_numeric(sheet.cells[heading])
                assert all(NUMERIC.fullmatch(cell) for cell in cells)
                assert len(set().union(*map(decimals, cells))) == 1, (heading, cells)
