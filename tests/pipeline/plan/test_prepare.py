"""What a plan does to the references of tables, figures, claims and page."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.study.config import Config
from tests.tools.made import Made


@pytest.mark.parametrize("harm", ["remove", "change", "empty"])
@pytest.mark.parametrize("harmed", ["claims.csv", "figures/A1.png", "tables/A1.tex", "report/index.html"])
def test_a_view_without_one_of_its_files_as_written_is_made_again(tmp_path: Path, harmed: str, harm: str) -> None:
    made = Made(tmp_path)
    made.make_views("table", "figure", "claims", "report")

    def lacking() -> set[str]:
        prepare(made.plan, make_tasks(made.plan, Config(study="smoke"), gpus=0), made.artifacts, made.store)
        return {view.artifact for view in made.plan.views if not made.artifacts.reference(view.artifact).exists()}

    assert lacking() == set()
    path = tmp_path / "results" / "smoke" / harmed
    if harm == "remove":
        path.unlink()
    else:
        path.write_text("" if harm == "empty" else path.read_text().replace("held", "hold"))
    # The table and the figure of an experiment are one job, which makes both again. But only one lacks its reference: a
    # run beside this plan may be drawing the other.
    assert lacking() == {view.artifact for view in made.plan.views if f"smoke/{harmed}" in view.outputs}
