"""The report: one static page per study, which needs no internet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, select_autoescape

from robustfeatures.pipeline.plan.view import PAGE
from robustfeatures.pipeline.report.numbers import format_number
from robustfeatures.pipeline.report.tables import make_sheets
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.pipeline.report.building import ViewJob

VERDICTS = ("held", "not held", "not tested")


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `report/index.html`: the experiments by paper, each with its figure, tables and claims."""
    claims = pd.read_csv(view.folder / "claims.csv")
    papers: dict[str, dict[str, Any]] = {}
    for experiment, results in view.experiments():
        section = _section(view, experiment, results, claims)
        papers.setdefault(experiment.paper, {"title": _title(experiment.paper), "sections": []})
        papers[experiment.paper]["sections"].append(section)
    for paper in papers.values():
        paper["verdicts"] = _verdicts(claim for section in paper["sections"] for claim in section["claims"])
    everything = _verdicts(claims.to_dict("records"))
    environment = Environment(loader=FileSystemLoader(PAGE.parent), autoescape=select_autoescape())
    environment.filters["number"] = format_number
    page = environment.get_template(PAGE.name).render(
        title=view.record["title"], study=view.record["study"], papers=papers, verdicts=everything
    )
    return {".html": page.encode()}


def _section(view: ViewJob, experiment: Experiment, results: Results, claims: pd.DataFrame) -> dict[str, Any]:
    """The section of one experiment. Links are relative to the page."""
    outputs = {
        each["kind"]: [str(PurePosixPath(name).relative_to(view.record["study"])) for name in each["outputs"]]
        for each in view.record["views"]
        if each["kind"] in ("table", "figure") and each["experiments"] == [experiment.id]
    }
    links = [name for names in outputs.values() for name in names]
    own = claims[claims["experiment"] == experiment.id].to_dict("records")
    section = {"experiment": experiment, "links": links, "claims": own, "verdicts": _verdicts(own)}
    if "figure" in outputs:
        caption = (view.folder / f"figures/{experiment.id}.txt").read_text(encoding="utf-8")
        # The first paragraph is the title, the second describes the figure.
        shown, *made = caption.strip().split("\n\n")[1:]
        section |= {"caption": shown, "made": made, "figure": f"figures/{experiment.id}.png"}
    if "table" in outputs:
        # Without these options pandas would read names such as "NA" as missing values.
        table = pd.read_csv(view.folder / f"tables/{experiment.id}.csv", keep_default_na=False, na_values=[""])
        section["sheets"] = [
            {"title": sheet.title, "columns": list(sheet.cells.columns), "rows": sheet.cells.to_numpy().tolist()}
            for sheet in make_sheets(table, results, experiment.units)
        ]
    return section


def _verdicts(claims: Iterable[Mapping[Any, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the order of `VERDICTS`."""
    found = [claim["verdict"] for claim in claims]
    return {verdict: found.count(verdict) for verdict in VERDICTS if verdict in found}


def _title(paper: str) -> str:
    return str(read_yaml(PUBLISHED / f"{paper}.yaml").get("paper", paper))
