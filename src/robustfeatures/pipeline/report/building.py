"""The job that writes a table, a figure, the claims or the page, from the references of its artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from robustfeatures.errors import UserError, join_words
from robustfeatures.experiments.shared.summaries import has_learned
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import ABSENT, hash_file, read_json, read_rows, write_atomically, write_json
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH
from robustfeatures.pipeline.plan.identity import identify_science
from robustfeatures.pipeline.plan.view import OUTPUTS, artifacts_of, inputs_of
from robustfeatures.pipeline.report.gates import describe_failure
from robustfeatures.pipeline.report.outdated import forget_marks, mark_outdated
from robustfeatures.pipeline.store.references import Artifacts, read_content, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.validation import find_adapter

if TYPE_CHECKING:
    import pandas as pd

    from robustfeatures.attacks.evaluating.settings import Evaluation
    from robustfeatures.experiments.experiment import Experiment, Results
    from robustfeatures.experiments.shared.resampling import ImageOutcomes


# Columns that hold names of classes or networks.
NAMES = ("source", "target", "victim", "network")
# The rows of evaluations and measurements; the diagnostics of evaluations; the history of trainings.
ROWS, DIAGNOSTICS, HISTORY = "rows.csv", "diagnostics.csv", "history.csv"
# Which images each row of an evaluation's rows.csv counts; the images of data sets.
ROBUST, IMAGES = "robust.npy", "data.zarr"


@dataclass(frozen=True)
class ViewFiles:
    """What a view makes: the contents of its files by suffix, and words about them that the page of the study shows."""

    contents: Mapping[str, bytes]
    words: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadNeed:
    """A need of an experiment, stage and recipe of its artifact, and those of its files that experiments read."""

    need: Mapping[str, Any]
    stage: str
    recipe: Mapping[str, Any]
    files: Mapping[str, Path]

    def rows(self, name: str) -> pd.DataFrame:
        """The rows of a CSV file, with the row, the seed and the columns of the need."""
        need = self.need
        return read_results(self.files[name]).assign(row=need["row"], seed=need["seed"], **need["columns"])

    @property
    def split(self) -> str:
        """Data set and split of an evaluation."""
        return f"{self.recipe['inputs']['data']}, {self.recipe['parameters']['split']}"


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

    def words(self, kind: str, experiment: str) -> dict[str, Any]:
        """What the `table` or the `figure` of an experiment says about itself; empty if the study has none."""
        for view in self.record["views"]:
            if view["kind"] == kind and view["experiments"] == [experiment]:
                words: dict[str, Any] = read_json(self.artifacts.reference(view["artifact"]))["words"]
                return words
        return {}

    def recipes(self) -> list[dict[str, Any]]:
        """The records of all recipes that the view and the views below it build on, inputs first.

        Each is there once, under each name that an experiment has for it. Names of inputs may be those of another
        study, whose plan was the last that was written.
        """
        found: dict[str, dict[str, Any]] = {}
        digests: set[str] = set()

        def collect(artifact: str) -> None:
            record = read_json(self.artifacts.plan(artifact))
            for below in record["inputs"].values():
                if below[-DIGEST_LENGTH:] not in digests:
                    collect(below)
            found[artifact] = record
            digests.add(artifact[-DIGEST_LENGTH:])

        below = [read_json(self.artifacts.reference(view["artifact"]))["recipe"] for view in self.record["views"]]
        for record in (self.record, *below):
            for artifact in artifacts_of(record["parts"]):
                if artifact not in found:
                    collect(artifact)
        return list(found.values())

    def _results(self, experiment: Experiment, part: Mapping[str, Any]) -> Results:
        import pandas as pd

        from robustfeatures.experiments.experiment import Results
        from robustfeatures.experiments.shared.masking import drop_noise_before_gradients, find_warnings

        needs = [self._read(need) for need in part["needs"]]
        evaluated = [each for each in needs if each.stage == "evaluation"]
        evaluations = [add_attack_names(each.rows(ROWS), attack_names(each.recipe)) for each in evaluated]
        together, single = split_by_attack(join_rows(evaluations))
        diagnostics = join_rows(
            drop_noise_before_gradients(each.rows(DIAGNOSTICS), attack_names(each.recipe))
            for each in evaluated
            if DIAGNOSTICS in each.files
        )
        histories = join_rows(each.rows(HISTORY) for each in needs if HISTORY in each.files)
        outcomes = [(each.split, each.files[ROBUST]) for each in evaluated if ROBUST in each.files]
        norm, attack = describe_attacks(each.recipe for each in evaluated)
        failed = self._failed_gates(part["gates"])
        setting = self.record["published_setting"]
        published = read_published(experiment, setting)
        return Results(
            evaluations=together,
            attacks=single,
            diagnostics=diagnostics,
            images=place_outcomes(evaluations, outcomes),
            notes=[
                *find_warnings(diagnostics),
                *find_repeated_networks(part["needs"]),
                *(f"{line}; no claim of this experiment is tested" for line in failed),
            ],
            failed_gates=failed,
            histories=histories.assign(accuracy=percent(histories["value"])) if len(histories) else histories,
            measurements=join_rows(each.rows(ROWS) for each in needs if each.stage == "measurement"),
            payloads={
                (each.need["row"], each.need["seed"]): each.files[IMAGES] for each in needs if IMAGES in each.files
            },
            settings=find_adapter(experiment.settings).validate_python(part["settings"], strict=False),
            published=None if published is None else pd.DataFrame(published["rows"]),
            published_source="" if published is None else published["source"],
            published_setting="" if published is None else published["setting"],
            comparable=published is not None and published["setting"] == setting and not self.record["reduced"],
            norm=norm,
            attack=attack,
        )

    def _read(self, need: Mapping[str, Any]) -> ReadNeed:
        reference = read_reference(self.artifacts.reference(need["artifact"]))
        names = (ROWS, DIAGNOSTICS, HISTORY, ROBUST, IMAGES)
        paths = self.store.verified(reference["key"], reference["content"], names)
        return ReadNeed(need, reference["stage"], reference["recipe"], {path.name: path for path in paths})

    def _failed_gates(self, gates: Iterable[Mapping[str, Any]]) -> list[str]:
        """A line for each gate whose measurement reaches less than it asks for."""
        import pandas as pd

        found = []
        for gate in gates:
            reference = read_reference(self.artifacts.reference(gate["artifact"]))
            (path,) = self.store.verified(reference["key"], reference["content"], [ROWS])
            found.append(describe_failure(gate, pd.read_csv(path)))
        return [line for line in found if line is not None]


def read_results(path: Path) -> pd.DataFrame:
    """The rows of a payload's CSV file. A name stays text: pandas would read "001" as a number and "NA" as missing."""
    import pandas as pd

    written = read_rows(path)
    rows = pd.read_csv(path)
    return rows.assign(**{name: [row[name] for row in written] for name in NAMES if name in rows and written})


def join_rows(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The tables one below the other; an empty one if there is none."""
    import pandas as pd

    found = list(tables)
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def place_outcomes(evaluations: Sequence[pd.DataFrame], files: Sequence[tuple[str, Path]]) -> list[ImageOutcomes]:
    """The outcomes per image of evaluations whose rows stand one below the other, from the split and file of each.

    Empty if an evaluation has no such file.
    """
    from robustfeatures.experiments.shared.resampling import ImageOutcomes

    if len(files) != len(evaluations):
        return []
    ends = list(accumulate((len(rows) for rows in evaluations), initial=0))
    return [
        ImageOutcomes(images, path, range(first, end), int(rows["total"].iloc[0]))
        for rows, (images, path), first, end in zip(evaluations, files, ends[:-1], ends[1:], strict=True)
    ]


def find_repeated_networks(needs: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each row with one evaluation for several seeds, as a network has that was trained elsewhere."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for need in needs:
        if need["artifact"].startswith("evaluation/"):
            seeds.setdefault((need["row"], need["artifact"]), set()).add(need["seed"])
    rows = dict.fromkeys(row for (row, _), found in seeds.items() if len(found) > 1)
    return [f"{row}: one network, trained elsewhere, stands for all seeds: its spread over seeds is 0" for row in rows]


def read_evaluation(recipe: Mapping[str, Any]) -> Evaluation:
    """The parameters of an evaluation from its recipe's record; its attacks are in the order in which they run."""
    from robustfeatures.attacks.evaluating.settings import Evaluation

    found: Evaluation = find_adapter(Evaluation).validate_python(recipe["parameters"], strict=False)
    return found


def attack_names(recipe: Mapping[str, Any]) -> list[str]:
    """The names of an evaluation's attacks from its recipe's record, in the order in which they run."""
    return [attack.name for attack in read_evaluation(recipe).attacks]


def describe_attacks(recipes: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """`Results.norm` and `Results.attack` of the evaluations with these records, from those at a positive radius."""
    from robustfeatures.attacks.settings import NORM_NAMES

    attacked = [parameters for parameters in map(read_evaluation, recipes) if max(parameters.eps) > 0]
    if not attacked:
        return "eps", "attack"
    norms = list(dict.fromkeys(NORM_NAMES[parameters.norm] for parameters in attacked))
    titles = list(dict.fromkeys(attack.title for parameters in attacked for attack in parameters.attacks))
    return norms[0] if len(norms) == 1 else "eps", f"{join_words(norms)} {join_words(titles)}"


def add_attack_names(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Add two columns to the rows of an evaluation: the last `attack` that ran, and whether it is the `final` one.

    `names` are those of its attacks, in the order in which they run.
    """
    named = rows.assign(final=(rows["eps"] == 0) | (rows["attacks"] == len(names)))
    last = [names[count - 1] if count else "" for count in rows["attacks"]]
    named.insert(list(rows.columns).index("attacks"), "attack", last)
    return named


def split_by_attack(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracies, `chance` (percent) and `learned`: under all attacks together, and under each with those before it.

    Both keep the index of `rows`, by which `Results.images` finds them.
    """
    if not len(rows):
        return rows, rows
    chance = percent(rows["most_frequent"] / rows["total"])
    shares = rows.assign(accuracy=percent(rows["correct"] / rows["total"]), chance=chance)
    shares["learned"] = has_learned(shares["accuracy"], shares["chance"])
    together = shares[shares["final"]].drop(columns=["attack", "attacks", "final"])
    single = shares[shares["attacks"] > 0].drop(columns=["attacks", "final"])
    return together, single


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

    The claims and the page of the study then say so where they show other results of the same experiment.

    Raises:
        UserError: the reference is not that of a view, or the view was never planned, its code has changed since, or an
            input is missing.
    """
    artifacts, artifact = Artifacts.of(reference)
    try:
        record = read_json(artifacts.plan(artifact))
    except (*ABSENT, ValueError) as error:
        raise UserError(f"{reference}: no study that was unfolded here plans this view") from error
    if record["stage"] not in OUTPUTS:
        raise UserError(f"{reference}: no table, figure, claims file or page; `robustfeatures build` makes it")
    if identify_science(tuple(record["code_entries"]), of_view=True) != {
        name: record[name] for name in ("code", "libraries")
    }:
        raise UserError(f"{artifact}: its code changed after the plan was made; run snakemake again")
    results = artifacts.root.parent
    contents = {name: read_content(artifacts.reference(name)) for name in inputs_of(record)}
    stage = import_module(f"robustfeatures.pipeline.report.views.{record['stage']}")
    made: ViewFiles = stage.make(ViewJob(record, artifacts, store))
    # A job that marks the page as outdated and the job that writes the page take turns.
    with FileLock(artifacts.root / f".{record['study']}.lock"):
        for name in record["outputs"]:
            write_atomically(results / name, made.contents[Path(name).suffix])
        # The files now show this plan, so the references of older plans of the view are no longer valid.
        for older in artifacts.builds(record["stage"], record["label"]):
            older.unlink()
        forget_marks(artifacts, record)
        described = {"label": record["label"], "stage": record["stage"], "words": dict(made.words), "recipe": record}
        files = {name: {"sha256": hash_file(results / name)} for name in record["outputs"]}
        write_json(reference, {**described, "files": files, "contents": contents})
        mark_outdated(artifacts, artifact)
