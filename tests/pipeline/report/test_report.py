"""The page of a study: by paper, with counts of verdicts and links to every file."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from robustfeatures.pipeline.report.building import ViewJob
from robustfeatures.pipeline.report.views import report
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store

IDS = ("A1", "A10", "B1", "A2")
CLAIMS = [("A1", "held"), ("A1", "held"), ("A1", "not held"), ("A2", "held"), ("B1", "not tested")]


@pytest.fixture
def page(tmp_path: Path) -> str:
    study = tmp_path / "study"
    for kind in ("tables", "figures"):
        (study / kind).mkdir(parents=True)
    claims = [
        {
            "experiment": each,
            "claim": f"claim {number}",
            "verdict": verdict,
            "value": 1.5,
            "threshold": 0.0,
            "quantity": "q",
            "source": "s",
        }
        for number, (each, verdict) in enumerate(CLAIMS)
    ]
    pd.DataFrame(claims, columns=[*claims[0], "low", "high"]).to_csv(study / "claims.csv", index=False)
    table = pd.DataFrame({"row": ["NA", "b"], "accuracy": [50.0, 60.0], "accuracy_std": [1.0, None], "seeds": [2, 1]})
    table.to_csv(study / "tables" / "A1.csv", index=False)
    for each in IDS:
        (study / "figures" / f"{each}.txt").write_text(
            f"{each}: t\n\nWhat {each} shows.\n\nWarning: masked\n\nSeeds: 0.\n"
        )
    kinds = {"table": ("csv", "tex"), "figure": ("png", "pdf", "txt")}
    views = [
        {
            "kind": kind,
            "experiments": [each],
            "artifact": "v",
            "outputs": [f"study/{kind}s/{each}.{suffix}" for suffix in kinds[kind]],
        }
        for kind, each in (("table", "A1"), *(("figure", each) for each in IDS))
    ]
    record = {
        "study": "study",
        "title": "A study",
        "views": views,
        "parts": [
            {"id": each, "needs": [], "settings": {"pathway_1": "x", "pathway_2": "y"} if each == "B1" else {}}
            for each in IDS
        ],
        "published_setting": "CIFAR-10",
    }
    job = ViewJob(record, Artifacts(tmp_path / "artifacts"), Store(tmp_path / "store"))
    return report.make(job)[".html"].decode()


def text_of(part: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", part)).strip()


def test_contents_by_paper(page: str) -> None:
    contents = page.partition("<nav>")[2].partition("</nav>")[0]
    assert re.findall(r'href="#([\w-]+)"', contents) == ["not-bugs-2019", "A1", "A10", "A2", "two-pathways-2021", "B1"]
    # Everything that is linked is there, once.
    for place in re.findall(r'href="#([\w-]+)"', contents):
        assert page.count(f'id="{place}"') == 1
    entries = [text_of(entry) for entry in re.findall(r"<li>.*?</li>", contents, re.DOTALL)]
    assert entries == [
        "A1: Robust and non-robust data sets 2 held , 1 not held",
        "A10: Samples of every derived set",
        "A2: Random and deterministic targets 1 held",
        "B1: The two pathways 1 not tested",
    ]
    assert "Claims: 3 held , 1 not held , 1 not tested" in text_of(page)
    assert "Claims: 3 held , 1 not held ." in text_of(page)


def test_each_experiment_has_its_parts(page: str) -> None:
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.DOTALL))
    assert set(sections) == set(IDS)
    for name, section in sections.items():
        assert f"<figcaption>What {name} shows.</figcaption>" in section
        assert '<p class="warning">Warning: masked</p>' in section
        assert "<li>Seeds: 0.</li>" in section
        assert {f"../figures/{name}.{kind}" for kind in ("png", "pdf", "txt")} <= set(
            re.findall('href="([^"]+)"', section)
        )
        assert section.count("claim ") == sum(each == name for each, _ in CLAIMS)
    a1 = text_of(sections["A1"])
    assert "NA 50.00 ± 1.00 2 b 60.00 1" in a1
    # The published values are below the measured ones.
    assert a1.index("60.00") < a1.index("Published (Table 7; CIFAR-10)") < a1.index("95.25")
    assert "nan" not in page
