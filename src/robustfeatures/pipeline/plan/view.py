"""Views: the tables, figures, claims and the page of a study, each with the digest of everything it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.experiments.catalogue import experiment_modules
from robustfeatures.experiments.experiment import Experiment, Need
from robustfeatures.files import hash_file
from robustfeatures.pipeline.plan.canonical import digest, to_json
from robustfeatures.pipeline.plan.gates import Gate
from robustfeatures.pipeline.plan.identity import identify_science
from robustfeatures.pipeline.study.checks import PUBLISHED

if TYPE_CHECKING:
    from robustfeatures.pipeline.study.study import Study

# The folder of the templates, styles and scripts of the page.
PAGE = Path(__file__).resolve().parents[1] / "report" / "page"

# The files that each kind of view writes below results/<study>/; {id} is the experiment's.
OUTPUTS = {
    "table": ("tables/{id}.csv", "tables/{id}.md", "tables/{id}.tex"),
    "figure": ("figures/{id}.png", "figures/{id}.pdf", "figures/{id}.txt"),
    "claims": ("claims.csv",),
    "report": ("report/index.html",),
}


@dataclass(frozen=True)
class Part:
    """One experiment of a study: its settings, the artifacts that it needs, and the gates on what these build on."""

    experiment: Experiment
    settings: Any
    needs: Sequence[Need]
    gates: Sequence[Gate] = ()

    def record(self) -> dict[str, Any]:
        """The part as JSON values, with the name of each needed artifact."""
        return {
            "id": self.experiment.id,
            "settings": to_json(self.settings),
            "needs": [
                {"row": need.row, "seed": need.seed, "artifact": need.recipe.name, "columns": dict(need.columns)}
                for need in self.needs
            ],
            # Two trainings of a study may be the same, and then their gates too.
            "gates": list({(gate.measured.name, gate.least): gate.record() for gate in self.gates}.values()),
        }


@dataclass(frozen=True, eq=False)
class View:
    """One table, figure, claims file or page of a study, for one experiment or for several.

    The report links to the other `views`, and shows the text of the `study_file`. `published_setting`, `reduced` and
    `precision` are those of the study.
    """

    study: str
    title: str
    kind: str
    parts: Sequence[Part]
    published_setting: str | None
    precision: str
    views: Sequence[View] = ()
    reduced: bool = False
    study_file: str = ""

    @cached_property
    def label(self) -> str:
        """The study's name; a table or figure adds the id of its experiment."""
        return f"{self.study}-{self.parts[0].experiment.id}" if self.kind in ("table", "figure") else self.study

    @property
    def job(self) -> str:
        """The name of the job that writes it. The table and the figure of an experiment share one, so they agree."""
        kind = "experiment" if self.kind in ("table", "figure") else self.kind
        return f"{kind}_{self.label}"

    def labels(self, output: str) -> dict[str, str]:
        """What the menu of `snakemake --report` says of one of the files."""
        shown = self.parts[0].experiment if self.kind in ("table", "figure") else None
        about = {"experiment": "all", "paper": "all"}
        if shown is not None:
            about = {"experiment": f"{shown.id}: {shown.title}", "paper": shown.paper}
        return {**about, "kind": self.kind, "format": Path(output).suffix.removeprefix(".")}

    @cached_property
    def code_entries(self) -> tuple[str, ...]:
        """The module of the view and those of the experiments."""
        modules = {experiment_modules()[part.experiment.id] for part in self.parts}
        view = f"robustfeatures.pipeline.report.views.{self.kind}"
        return tuple(sorted({view, "robustfeatures.pipeline.report.building", *modules}))

    @cached_property
    def record(self) -> dict[str, Any]:
        """Everything that the job needs, as JSON values."""
        return {
            "stage": self.kind,
            "label": self.label,
            "study": self.study,
            "title": self.title,
            "parts": [part.record() for part in self.parts],
            "published_setting": self.published_setting,
            "reduced": self.reduced,
            "precision": self.precision,
            "study_file": self.study_file,
            "files": {path.name: hash_file(path) for path in self._files},
            "views": [
                {
                    "kind": view.kind,
                    "experiments": [part.experiment.id for part in view.parts],
                    "artifact": view.artifact,
                    "outputs": list(view.outputs),
                }
                for view in self.views
            ],
            "outputs": list(self.outputs),
            "code_entries": list(self.code_entries),
            **identify_science(self.code_entries, of_view=True),
        }

    @property
    def _files(self) -> list[Path]:
        """The files of this package that the job reads."""
        papers = sorted({part.experiment.paper for part in self.parts})
        return [PUBLISHED / f"{paper}.yaml" for paper in papers] + (
            sorted(PAGE.iterdir()) if self.kind == "report" else []
        )

    @cached_property
    def artifact(self) -> str:
        """`<stage>/<label>-<digest>`."""
        return f"{self.kind}/{self.label}-{digest(self.record)}"

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The files it writes, below the results folder."""
        identifier = self.parts[0].experiment.id if self.parts else ""
        return tuple(f"{self.study}/{name.format(id=identifier)}" for name in OUTPUTS[self.kind])

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The artifacts it reads, `<stage>/<label>-<digest>`, without duplicates."""
        return tuple(inputs_of(self.record))


def artifacts_of(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """The artifacts that parts of a view's record build on, also those that measure gates, each once."""
    # References that an earlier version wrote have no gates.
    return list(dict.fromkeys(each["artifact"] for part in parts for each in (*part["needs"], *part.get("gates", ()))))


def inputs_of(record: Mapping[str, Any]) -> list[str]:
    """The artifacts that a view with this record reads, results and other views, each once."""
    return list(dict.fromkeys([*artifacts_of(record["parts"]), *(view["artifact"] for view in record["views"])]))


def make_views(study: Study, name: str, study_file: str, parts: Mapping[str, Part]) -> list[View]:
    """Every view of a study: a table and a figure for each experiment that defines them, the claims, the report.

    `study_file` is the text of the study's file.
    """

    computed = f"{study.precision}, compiled by torch" if study.compile else study.precision

    def view(kind: str, shown: Sequence[Part], views: Sequence[View] = (), text: str = "") -> View:
        return View(name, study.title, kind, shown, study.published_setting, computed, views, study.reduced, text)

    found = []
    for part in parts.values():
        for kind, function in (("table", part.experiment.table), ("figure", part.experiment.figure)):
            if function is not None:
                found.append(view(kind, [part]))
    found.append(view("claims", [part for part in parts.values() if part.experiment.claims is not None]))
    shown = [Part(part.experiment, part.settings, ()) for part in parts.values()]
    return [*found, view("report", shown, found, study_file)]
