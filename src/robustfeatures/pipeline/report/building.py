"""The job that writes a table, a figure, the claims or the page, from the references of its artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import hash_file, read_json, write_atomically, write_json
from robustfeatures.pipeline.plan.identity import identify_science
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.checks import PUBLISHED

if TYPE_CHECKING:
    import pandas as pd

    from robustfeatures.experiments.experiment import Experiment, Results


# The kind of rows by the stage and the file that hold them.
TABLES = {
    ("evaluation", "rows.csv"): "evaluations",
    ("evaluation", "diagnostics.csv"): "diagnostics",
    ("measurement", "rows.csv"): "measurements",
    ("model", "history.csv"): "histories",
}


@dataclass(frozen=True)
class ViewJob:
    """The record of a view and the results of its experiments, for the module that writes the view."""

    record: Mapping[str, Any]
    artifacts: Artifacts
    store: Store

    @property
    def folder(self) -> Path:
        """results/<study>."""
        return self.artifacts.root.parent / str(self.record["study"])

    def experiments(self) -> Iterator[tuple[Experiment, Results]]:
        """Each experiment of the view with its results."""
        from robustfeatures.experiments.catalogue import load_experiment

        for part in self.record["parts"]:
            found = load_experiment(part["id"])
            yield found, self._results(found, part)

    def recipes(self) -> list[dict[str, Any]]:
        """The records of all recipes that the view builds on, each once, inputs first."""
        found: dict[str, dict[str, Any]] = {}

        def collect(artifact: str) -> None:
            if artifact not in found:
                record = read_json(self.artifacts.plan(artifact))
                for below in record["inputs"].values():
                    collect(below)
                found[artifact] = record

        for part in self.record["parts"]:
            for need in part["needs"]:
                collect(need["artifact"])
        return list(found.values())

    def _results(self, experiment: Experiment, part: Mapping[str, Any]) -> Results:
        import pandas as pd
        from pydantic import TypeAdapter

        from robustfeatures.experiments.experiment import Results
        from robustfeatures.experiments.shared.masking import find_warnings

        frames: dict[str, list[pd.DataFrame]] = {kind: [] for kind in TABLES.values()}
        payloads: dict[tuple[str, int], Path] = {}
        for need in part["needs"]:
            reference = read_reference(self.artifacts.reference(need["artifact"]))
            names = ("rows.csv", "diagnostics.csv", "history.csv", "data.zarr")
            for path in self.store.verified(reference["key"], names):
                if path.name == "data.zarr":
                    payloads[need["row"], need["seed"]] = path
                else:
                    rows = pd.read_csv(path).assign(row=need["row"], seed=need["seed"], **need["columns"])
                    kind = TABLES[reference["stage"], path.name]
                    frames[kind].append(add_attack_names(rows, reference["recipe"]) if kind == "evaluations" else rows)
        read = {
            kind: pd.concat(found, ignore_index=True) if found else pd.DataFrame() for kind, found in frames.items()
        }
        published = read_published(experiment, self.record["published_setting"])
        together, single = split_by_attack(read["evaluations"])
        histories = read["histories"]
        return Results(
            evaluations=together,
            attacks=single,
            diagnostics=read["diagnostics"],
            notes=find_warnings(read["diagnostics"]),
            histories=histories.assign(accuracy=percent(histories["value"])) if len(histories) else histories,
            measurements=read["measurements"],
            payloads=payloads,
            settings=TypeAdapter(experiment.settings).validate_python(part["settings"], strict=False),
            published=None if published is None else pd.DataFrame(published["rows"]),
            published_source="" if published is None else published["source"],
            published_setting="" if published is None else published["setting"],
            comparable=published is not None and published["setting"] == self.record["published_setting"],
        )


def attack_names(recipe: Mapping[str, Any]) -> list[str]:
    """The names of an evaluation's attacks from its recipe's record, in the order in which they run."""
    from pydantic import TypeAdapter

    from robustfeatures.attacks.evaluating.settings import Evaluation

    parameters = TypeAdapter(Evaluation).validate_python(recipe["parameters"], strict=False)
    return [attack.name for attack in parameters.attacks]


def add_attack_names(rows: pd.DataFrame, recipe: Mapping[str, Any]) -> pd.DataFrame:
    """Add two columns to the rows of an evaluation: the last `attack` that ran, and whether it is the `final` one."""
    names = attack_names(recipe)
    named = rows.assign(final=(rows["eps"] == 0) | (rows["attacks"] == len(names)))
    last = [names[count - 1] if count else "" for count in rows["attacks"]]
    named.insert(list(rows.columns).index("attacks"), "attack", last)
    return named


def split_by_attack(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracies in percent: under all attacks together, and under each attack with those before it."""
    if not len(rows):
        return rows, rows
    shares = rows.assign(accuracy=percent(rows["correct"] / rows["total"]))
    together = shares[shares["final"]].drop(columns=["attack", "attacks", "final"])
    single = shares[shares["attacks"] > 0].drop(columns=["attacks", "final"])
    return together.reset_index(drop=True), single.reset_index(drop=True)


def read_published(experiment: Experiment, setting: str | None) -> dict[str, Any] | None:
    """The published values of an experiment: source, setting, rows; None if the paper prints none.

    If the paper has no values in this setting, those of every setting are returned, and each row names its setting.
    """
    from robustfeatures.pipeline.study.yaml import read_yaml

    published: list[dict[str, Any]] = read_yaml(PUBLISHED / f"{experiment.paper}.yaml").get(experiment.id, [])
    entries = [entry for entry in published if entry["setting"] == setting] or published
    if len(entries) < 2:
        return next(iter(entries), None)
    return {
        "source": ", ".join(dict.fromkeys(entry["source"] for entry in entries)),
        "setting": ", ".join(dict.fromkeys(entry["setting"] for entry in entries)),
        "rows": [{"setting": entry["setting"], **row} for entry in entries for row in entry["rows"]],
    }


def build_view(reference: Path, *, store: Store) -> None:
    """Write the files of the view that `reference` names, then the reference; remove older references of the view.

    Raises:
        UserError: the view was never planned, its code has changed since, or an input is missing.
    """
    artifacts, artifact = Artifacts.of(reference)
    try:
        record = read_json(artifacts.plan(artifact))
    except (OSError, ValueError) as error:
        raise UserError(f"{reference}: no study that was unfolded here plans this view") from error
    if identify_science(tuple(record["code_entries"])) != {name: record[name] for name in ("code", "libraries")}:
        raise UserError(f"{artifact}: its code changed after the plan was made; run snakemake again")
    results = artifacts.root.parent
    stage = import_module(f"robustfeatures.pipeline.report.views.{record['stage']}")
    contents: Mapping[str, bytes] = stage.make(ViewJob(record, artifacts, store))
    for name in record["outputs"]:
        write_atomically(results / name, contents[Path(name).suffix])
    # The files now show this plan, so the references of older plans of the view are no longer valid.
    for older in artifacts.builds(record["stage"], record["label"]):
        older.unlink()
    files = {name: {"sha256": hash_file(results / name)} for name in record["outputs"]}
    write_json(reference, {"label": record["label"], "stage": record["stage"], "files": files, "recipe": record})
