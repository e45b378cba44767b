"""Tables as cells, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from robustfeatures.errors import make_printable
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.pipeline.report.tables import as_latex, as_markdown, make_sheets, measured_columns
from robustfeatures.pipeline.report.views.table import render_latex, render_markdown
from tests.experiments.shared import test_claims
from tests.experiments.shared import test_summaries as other
from tests.security.hostile import NAMES

UNITS = {"accuracy": "%"}
ESCAPED = re.compile(
    r"\\[&%$#_{}]|\\(?:textbackslash|textasciitilde|textasciicircum|space) ?"
    r"|\$(?:\\pm|-|\\times 10\^\{-?\d+\})\$"
)


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
    text = render_latex(load_experiment("A1"), given, table, ["Study: 100 % a study."])
    tabulars = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    read = [rows_of(tabular) for tabular in tabulars]
    assert [len(rows) for _, rows in read] == [1 + 2, 1 + 4, 1 + 6]
    for columns, rows in read:
        assert {len(row) for row in rows} == {len(columns)}
    assert read[1][0] == "llrrrr"
    assert read[1][1][0] == ["row", "eps", r"accuracy (\%)", r"95 \% interval", "published", "difference"]
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


def test_several_quantities_each_have_their_columns() -> None:
    given = other.results(comparable=True)
    values = ["radius", "gap"]
    table = add_published(summarise_seeds(other.ROWS, ["row"], values=values), given, ["row"], values=values)
    assert measured_columns(table) == values
    measured, published = make_sheets(table, given, {"gap": "nats"})
    assert measured.title == "Mean ± standard deviation over 3 seeds, 95 % intervals of the mean (Student's t):"
    expected = ["row", "radius", "radius: 95 % interval", "radius: published", "radius: difference", "gap (nats)"]
    assert list(measured.cells.columns) == [*expected, "gap: 95 % interval"]
    a = measured.cells[measured.cells["row"] == "a"].iloc[0]
    assert a["radius"] == "1.00 ± 0.50"
    assert (a["radius: published"], a["radius: difference"]) == ("1.25", "-0.25")
    assert a["gap (nats)"] == "3.0e-7 ± 1.0e-7"
    assert list(published.cells["radius"]) == ["1.25", "9"]


def test_a_table_of_theory_has_neither_seeds_nor_eps() -> None:
    given = replace(other.results(comparable=False), published=None)
    table = pd.DataFrame({"k": [2, 10], "threshold": [0.5, 1.25e-9], "correlation": [0.9, 0.1]})
    table = table.assign(correlation_low=[0.8, -0.1], correlation_high=[0.95, 0.3])
    (sheet,) = make_sheets(table, given, {})
    assert sheet.title == "95 % intervals:"
    assert sheet.cells.to_numpy().tolist() == [
        ["2", "0.5", "0.9000", "0.8000 to 0.9500"],
        ["10", "1.25e-9", "0.1000", "-0.1000 to 0.3000"],
    ]
    (bare,) = make_sheets(table[["k", "threshold"]], given, {})
    assert bare.title == ""


def test_a_constant_radius_takes_no_column() -> None:
    given = replace(test_claims.results(comparable=False), published=None)
    clean = test_claims.ROWS[test_claims.ROWS["eps"] == 0]
    (sheet,) = make_sheets(summarise_seeds(clean, ["row", "eps"]), given, UNITS)
    assert list(sheet.cells.columns) == ["row", "accuracy (%)", "95 % interval"]
    assert "clean images" in sheet.title
    attacked = test_claims.ROWS[test_claims.ROWS["eps"] > 0]
    (sheet,) = make_sheets(summarise_seeds(attacked, ["row", "eps"]), given, UNITS)
    assert list(sheet.cells["eps"]) == ["0.25", "0.25"]


def test_rows_that_share_their_names_are_all_shown() -> None:
    given = replace(test_claims.results(comparable=False), published=None)
    table = summarise_seeds(test_claims.ROWS, ["row", "eps"])
    twice = pd.concat([table, table.assign(accuracy=1.0)], ignore_index=True)
    (sheet,) = make_sheets(twice, given, UNITS)
    assert len(sheet.cells) == 8


def test_rows_of_other_seeds_say_how_many() -> None:
    given = replace(other.results(comparable=False), published=None)
    table = summarise_seeds(other.ROWS.drop(index=0), ["row"], values=["radius"])
    (sheet,) = make_sheets(table, given, {})
    assert "2 to 3 seeds" in sheet.title
    assert list(sheet.cells["seeds"]) == ["2", "3"]


def test_warnings_stand_above_the_table() -> None:
    noted = replace(test_claims.results(comparable=False), notes=["gradients are masked"])
    table = summarise_seeds(test_claims.ROWS, ["row", "eps"])
    text = render_markdown(load_experiment("A1"), noted, table, [])
    assert text.index("**Warning: gradients are masked**") < text.index("|")
    assert "% Warning: gradients are masked\n" in render_latex(load_experiment("A1"), noted, table, [])
