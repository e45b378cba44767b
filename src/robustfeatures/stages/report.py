"""Stage report: one static page per study, which opens without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from jinja2 import Environment, FileSystemLoader, select_autoescape

from robustfeatures.recipes.view import PAGE

if TYPE_CHECKING:
    from robustfeatures.views import ViewJob


def make(view: ViewJob) -> Mapping[str, bytes]:
    """The contents of `report/index.html`: claims, then each experiment's figure and table."""
    claims = pd.read_csv(view.folder / "claims.csv")
    names = set(view.record["views"])
    sections = []
    for experiment, _ in view.experiments():
        table = f"{view.record['study']}/tables/{experiment.id}.csv"
        figure = f"{view.record['study']}/figures/{experiment.id}.png"
        sections.append(
            {
                "experiment": experiment,
                "table": pd.read_csv(view.folder / "tables" / f"{experiment.id}.csv").dropna(axis="columns", how="all")
                if table in names
                else None,
                "figure": f"../figures/{experiment.id}.png" if figure in names else None,
            }
        )
    environment = Environment(loader=FileSystemLoader(PAGE.parent), autoescape=select_autoescape())
    page = environment.get_template(PAGE.name).render(
        title=view.record["title"], study=view.record["study"], claims=claims.to_dict("records"), sections=sections
    )
    return {".html": page.encode()}
