"""The page of a study: the study at the top, all claims, and by paper each experiment. It is one file."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustfeatures.files import read_json, write_json
from robustfeatures.pipeline.report.embedding import embed_figure
from robustfeatures.pipeline.report.study_facts import StudyFacts, choose_samples, describe_seconds, read_facts
from robustfeatures.pipeline.report.verdicts import VERDICTS
from robustfeatures.pipeline.report.views import report
from tests.pipeline.report.made_up import CLAIMS, IDS, made_up_study


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report.make(made_up_study(tmp_path_factory.mktemp("page"))).contents[".html"].decode()


def text_of(part: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", part)).strip()


def section_of(page: str, experiment: str) -> str:
    """The fold of an experiment, up to the next one."""
    found = page.partition(f'<details class="experiment" id="{experiment}"')[2]
    return re.split(r'<details class="experiment"|</main>', found)[0]


def test_contents_by_paper(page: str) -> None:
    contents = page.partition("<nav")[2].partition("</nav>")[0]
    order = ["study", "claims", "not-bugs-2019", "A1", "A10", "A2", "two-pathways-2021", "B1"]
    assert re.findall(r'href="#([\w-]+)"', contents) == order
    # Everything that is linked is there, once.
    for place in re.findall(r'href="#([\w-]+)"', page):
        assert page.count(f'id="{place}"') == 1, place
    entries = [text_of(entry) for entry in re.findall(r"<li>.*?</li>", contents, re.DOTALL)][2:]
    assert entries == [
        "A1 : Robust and non-robust data sets 1 held , 1 contradicted , 1 undecided ; controls: 1 held",
        "A10 : Samples of every derived set",
        "A2 : Random and deterministic targets 1 held",
        "B1 : The two pathways 1 not tested",
    ]
    assert "papers: 2 held , 1 contradicted , 1 undecided , 1 not tested ; controls: 1 held ." in text_of(page)
    assert "Claims: 2 held , 1 contradicted , 1 undecided ; controls: 1 held ." in text_of(page)


def test_the_page_is_one_file(page: str) -> None:
    outside = re.findall(r'(?:src|href)="(?!#|data:|https://)([^"]*)"', page)
    assert outside == []
    assert "<link" not in page
    assert re.findall(r"<script[^>]*src", page) == []
    assert page.count("data:image/png;base64,") == len(IDS) + 10


def test_the_top_says_what_was_computed_where_and_with_what(page: str) -> None:
    top = text_of(page.partition('<section id="study"')[2].partition("</section>")[0])
    for part in (
        "It repeats 4 experiments of 2 papers",
        "on dots. It made 1 data set.",
        "dots: 24 train, 24 test, images of 8 x 8 pixels, grey, 12 classes",
        "Computed 2026-01-02, 2 hours of computing",
        "x86_64, 2 cores, cpu; float32",
        "Commit 0123456789abcdef ",
        "Python 3.11.2, torch 2.13.0, numpy 2.4.6",
        "snakemake --cores all --config study=study",
        "title: A study seeds: [0]",
        "class 0 class 1 class 2 class 3 class 4 class 5 class 6 class 7 class 8 class 9",
    ):
        assert part in top, part
    for name in ("D", "D_R", "D_NR", "D_rand", "D_det"):
        assert f"<dt>{name}</dt><dd>" in page
    assert 'href="https://arxiv.org/abs/1905.02175"' in page


def test_a_payload_with_two_names_counts_once(tmp_path: Path) -> None:
    view = made_up_study(tmp_path)
    known, twin = (f"data/{name}-{'0' * 16}" for name in ("dots", "twin"))
    recipe = {**read_json(view.artifacts.plan(known)), "label": "twin", "family": "twin"}
    write_json(view.artifacts.plan(twin), recipe)
    write_json(view.artifacts.reference(twin), {**read_json(view.artifacts.reference(known)), "recipe": recipe})
    shown = view.artifacts.reference(view.record["views"][0]["artifact"])
    table = read_json(shown)
    (part,) = table["recipe"]["parts"]
    part["needs"].append({**part["needs"][0], "row": "twin", "artifact": twin})
    write_json(shown, table)
    facts = read_facts(view)
    assert [data.name for data in facts.data] == ["dots", "twin"]
    assert (facts.made, facts.computing_time) == (["1 data set"], "2 hours of computing")


def test_the_computing_of_each_stage_is_told() -> None:
    seconds = {"data": 0.0, "evaluation": 600.0, "model": 7200.0, "derived": 7260.0}
    references = [
        {"stage": stage, "key": stage, "built": {"computing_seconds": each}} for stage, each in seconds.items()
    ]
    told = "4.18 hours of computing: trained networks 2 hours, derived data sets 2.02 hours, evaluations under attack "
    assert StudyFacts(references, []).computing_time == f"{told}10 minutes"


def test_each_experiment_has_its_parts(page: str) -> None:
    for name in IDS:
        section = section_of(page, name)
        assert f"<figcaption>What {name} shows: masked.</figcaption>" in section
        assert f'alt="{name}: bars of masked."' in section
        assert '<p class="warning">Warning: masked</p>' in section
        assert "<li>Seeds of masked: 0.</li>" in section
        assert f"figures/{name}.pdf" in section
        quantities = [f"q {number}" for number, (each, *_) in enumerate(CLAIMS) if each == name]
        assert re.findall(r"q \d", section) == quantities
    a1 = text_of(section_of(page, "A1"))
    assert "A1: Accuracy (%) of masked: network masked NA 50.00 ± 1.00 b 60.00" in a1
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page)


def rows_of(table: str) -> list[str]:
    return [text_of(row) for row in re.findall(r"<tr[ >].*?</tr>", table, re.DOTALL)]


def test_one_table_has_every_sentence_once(page: str) -> None:
    rows = rows_of(page.partition('<table id="all-claims"')[2].partition("</table>")[0])[1:]
    assert rows == [
        "A1 not-bugs-2019 claim 0 held 1.5 -1 to 12.25 0 s",
        "A1 not-bugs-2019 claim 1 undecided held in 1, undecided in 1 of 2 settings s",
        "A1 not-bugs-2019 claim 2 contradicted 31.5 -1 to 12.25 0 s",
        "A1 not-bugs-2019 Control: claim 3 held 41.5 -1 to 12.25 0 s",
        "A2 not-bugs-2019 claim 4 (one &lt; two) held 51.5 -1 to 12.25 one network 0 s",
        "B1 two-pathways-2021 claim 5 not tested 61.5 0 s",
    ]


def test_a_sentence_in_several_settings_stands_once_above_them(page: str) -> None:
    section = section_of(page, "A1")
    assert section.count("claim 1") == 1
    rows = rows_of(section)
    at = rows.index("claim 1 undecided held in 1, undecided in 1 of 2 settings s")
    assert rows[at + 1] == "L2 q 1 held 11.5 -1 to 12.25 0"
    assert rows[at + 2] == "Linf q 2 undecided 21.5 -1 to 12.25 0"
    assert "Control: claim 3 q 4 held 41.5 -1 to 12.25 0 s" in rows


def test_the_page_explains_every_verdict(page: str) -> None:
    explained = text_of(page.partition("What the verdicts mean")[2].partition("</details>")[0])
    for verdict in (*VERDICTS, "one network", "Controls"):
        assert verdict in explained


def test_samples_are_of_different_classes() -> None:
    assert choose_samples([2, 2, 0, 1, 0]) == [2, 4, 3, 0, 1]
    assert choose_samples([5] * 20) == list(range(10))
    many = np.arange(1000) % 50
    assert choose_samples(many) == list(range(10))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (100, "100 s"), (150, "2.5 minutes"), (7200, "2 hours"), (2e5, "2.31 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text


def test_a_drawing_takes_fewer_bytes_and_looks_the_same(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3))
    axes = figure.subplots()
    for number in range(6):
        axes.plot(np.sin(np.arange(200) / (10 + number)), label=f"series {number}")
    axes.legend()
    path = tmp_path / "figure.png"
    figure.savefig(path, dpi=200)
    embedded = embed_figure(path)
    content = base64.b64decode(embedded.uri.partition(",")[2])
    assert len(content) < path.stat().st_size / 2
    before, after = (np.asarray(Image.open(source).convert("RGB"), dtype=int) for source in (path, io.BytesIO(content)))
    assert (embedded.width, embedded.height) == (before.shape[1], before.shape[0])
    assert np.abs(before - after).mean() < 1
    assert np.abs(before - after).max() < 80


def test_a_photograph_keeps_its_bytes(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    path = tmp_path / "photograph.png"
    Image.fromarray(pixels).save(path)
    assert base64.b64decode(embed_figure(path).uri.partition(",")[2]) == path.read_bytes()
