"""The report: one static page per study. It is one file, which needs no other file and no internet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, select_autoescape

from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.pipeline.plan.view import PAGE
from robustfeatures.pipeline.report.building import ViewFiles
from robustfeatures.pipeline.report.embedding import embed_figure
from robustfeatures.pipeline.report.numbers import format_number
from robustfeatures.pipeline.report.study_facts import read_facts
from robustfeatures.pipeline.report.verdicts import VERDICTS, Sentence, count_verdicts, find_sentences
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment
    from robustfeatures.pipeline.report.building import ViewJob


def make(view: ViewJob) -> ViewFiles:
    """The contents of `report/index.html`: the study, all claims, and by paper each experiment."""
    claims = read_claims(view.folder / "claims.csv")
    papers: dict[str, dict[str, Any]] = {}
    for part in view.record["parts"]:
        experiment = load_experiment(part["id"])
        printed = read_yaml(PUBLISHED / f"{experiment.paper}.yaml")
        paper = {"title": printed["paper"], "url": printed["url"], "sections": []}
        papers.setdefault(experiment.paper, paper)["sections"].append(_section(view, experiment, claims))
    for paper in papers.values():
        paper["verdicts"] = count_claims(sentence for section in paper["sections"] for sentence in section["sentences"])
    page = (
        page_templates()
        .get_template("page.html")
        .render(
            record=view.record,
            facts=read_facts(view),
            papers=papers,
            verdicts=count_claims(find_sentences(claims.to_dict("records"))),
            known_verdicts=VERDICTS,
        )
    )
    return ViewFiles({".html": page.encode()})


def page_templates() -> Environment:
    """The templates of the page, which escape every name."""
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = format_number
    return environment


def read_claims(path: Any) -> pd.DataFrame:
    """The rows of a claims.csv; texts that are missing are empty."""
    claims = pd.read_csv(path, dtype={"setting": str, "interval": str})
    return claims.fillna({"setting": "", "interval": ""})


def _section(view: ViewJob, experiment: Experiment, claims: pd.DataFrame) -> dict[str, Any]:
    """The section of one experiment. Links are relative to the page."""
    own = find_sentences(claims[claims["experiment"] == experiment.id].to_dict("records"))
    table, figure = view.words("table", experiment.id), view.words("figure", experiment.id)
    section = {
        "experiment": experiment,
        "sentences": own,
        "verdicts": count_claims(own),
        "sheets": table.get("sheets", []),
        "files": [str(PurePosixPath(name).relative_to(view.record["study"])) for name in _outputs(view, experiment.id)],
        "warnings": (figure or table)["warnings"],
        "provenance": (figure or table)["provenance"],
    }
    if figure:
        image = embed_figure(view.folder / f"figures/{experiment.id}.png")
        section |= {"figure": image, "caption": figure["caption"], "alternative_text": figure["alternative_text"]}
    return section


def _outputs(view: ViewJob, experiment: str) -> list[str]:
    found = (each for each in view.record["views"] if each["experiments"] == [experiment])
    return [name for each in found if each["kind"] in ("table", "figure") for name in each["outputs"]]


def count_claims(sentences: Iterable[Sentence]) -> dict[str, Mapping[str, int]]:
    """The counts of the papers' sentences, and of controls; neither where there are none."""
    found = list(sentences)
    counts = {"claims": count_verdicts(found, control=False), "controls": count_verdicts(found, control=True)}
    return {kind: verdicts for kind, verdicts in counts.items() if verdicts}
