"""E4: robust accuracy against L2 radius of networks trained on two merged classes and on all classes.

feature-averaging-2025, Figure 2. Of its tasks the slides say only "We create binary classification tasks from the MNIST
and CIFAR10 datasets". The splits are our choice: MNIST by parity, the first five classes of CIFAR-10 against the last
five. The text gives neither the figure's values, radii and attack, nor the read-out of the larger network and the
attacked loss. The comparison depends on both (`measurements/two_sides.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen
from pydantic import AfterValidator, ValidationInfo

from robustfeatures.attacks.settings import NORM_NAMES, NormName, check_in_norm
from robustfeatures.data.settings import ClassName, Data, MergeClasses
from robustfeatures.engine.settings import Fraction, PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.checks import check_reach
from robustfeatures.pipeline.study.parameters import Distinct, Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


TWO, MANY = "2-class", "k-class"
SUMMED, LARGEST = "summed logits", "largest logit"
OWN, READ_OUT, EITHER = "own cross-entropy", "read-out", "either"
ATTACKED = {OWN: "its own cross-entropy", READ_OUT: "the read-out", EITHER: "either"}
SECTION = "feature-averaging-2025, Figure 2"


@dataclass(frozen=True, kw_only=True)
class Task(Strict):
    """The same images with all classes and with two."""

    classes: Name = "D"
    """The data set with all classes: D, or a name of `other_data`."""
    merged: Name
    """The name in `other_data` of the same images with two classes."""
    training: Name = "standard"
    """The training of both networks."""
    eps: Annotated[tuple[PositiveFloat, ...], MinLen(1), Distinct]
    """The radii."""


def _check_radii(tasks: Mapping[str, Task], info: ValidationInfo) -> Mapping[str, Task]:
    for task in tasks.values():
        check_in_norm(task.eps, info)
    return tasks


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The tasks, and the attack on both networks."""

    norm: NormName = "l2"
    """The norm of the radii."""
    tasks: Annotated[Mapping[Name, Task], MinLen(1), AfterValidator(_check_radii)]
    """The tasks by name."""
    steps: PositiveInt = 50
    """The steps of PGD from the image."""
    relative_step_size: Fraction = 0.1
    """The length of a step as a share of the radius."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per task, network and seed.

    Raises:
        UserError: the merged data set of a task does not end with a merge into two classes, or PGD is too short.
    """
    check_reach(settings.steps, settings.relative_step_size, "experiments.E4.steps")
    found = []
    for name, task in settings.tasks.items():
        merged = pieces.data(task.merged)
        groups = _groups(merged, f"experiments.E4.tasks.{name}.merged")
        networks = {
            TWO: (task.merged, [[side] for side in groups]),
            MANY: (task.classes, [list(members) for members in groups.values()]),
        }
        for seed in pieces.study.seeds:
            for network, (data, sides) in networks.items():
                measurement = pieces.measurement(
                    f"{pieces.data(data).label}-{name}-{network}",
                    "measurements.two_sides",
                    {
                        "sides": sides,
                        "norm": settings.norm,
                        "eps": [0.0, *task.eps],
                        "steps": settings.steps,
                        "relative_step_size": settings.relative_step_size,
                        "precision": pieces.study.precision,
                    },
                    {"data": pieces.data(data), "model": pieces.source_model(task.training, seed, data=data)},
                    seed=seed,
                )
                found.append(Need(network, seed, measurement, {"task": name}))
    return found


def _groups(merged: Recipe, field: str) -> Mapping[str, tuple[ClassName, ...]]:
    assert isinstance(merged.parameters, Data)
    last = merged.parameters.operations[-1:]
    if not last or not isinstance(last[0], MergeClasses) or len(last[0].groups) != 2:
        raise UserError(f"{field}: the last operation of {merged.label!r} must merge its classes into two")
    return last[0].groups


def name_network(read_out: str, attack: str) -> str:
    """The name of the network of all classes under one read-out and attack."""
    return f"{MANY}, {read_out}, attack on {ATTACKED[attack]}"


def name_networks(results: Results) -> pd.DataFrame:
    """The rows with `accuracy` (percent) and `network`, which names training, read-out and attack."""
    rows = results.measurements
    network = [
        TWO if trained == TWO else name_network(read_out, attack)
        for trained, read_out, attack in zip(rows["row"], rows["read_out"], rows["attack"], strict=True)
    ]
    found = rows.assign(network=network, accuracy=percent(rows["correct"] / rows["total"]))
    # The radii of a network are consecutive rows.
    return found.sort_values(["task", "row", "network"], kind="stable", key=lambda column: column.factorize()[0])


def table(results: Results) -> pd.DataFrame:
    """One line per task, network with attack, and radius."""
    by = ["task", "network", "eps"]
    return add_published(summarise_seeds(name_networks(results), by), results, by)


def figure(results: Results) -> Figure:
    """Curves over the radius, a panel per task, as Figure 2."""
    from robustfeatures.experiments.shared.plots import curves

    rows = name_networks(results)
    # The curve under either attack nearly equals that under the read-out attack, which the claim is about.
    shown = rows[(rows["row"] == TWO) | (rows["attack"] != EITHER)]
    norm = NORM_NAMES[results.settings.norm]
    return curves(
        shown,
        panel="task",
        line="network",
        line_label=lambda name: name.replace("attack on its own cross-entropy", "own cross-entropy attacked").replace(
            "attack on the read-out", "read-out attacked"
        ),
        x="eps",
        xlabel=f"radius of {norm} PGD, {results.settings.steps} steps",
        ylabel=f"accuracy under {norm} PGD (%)",
    )


def claims(results: Results) -> list[Claim]:
    """The claim of Figure 2 for each task and read-out, under an attack on the loss of the read-out.

    The 2-class network faces the same attack alone, so a second one on the other network would bias the comparison.
    A control: an attack on the network's own cross-entropy overestimates robustness, compared to one on the read-out.
    """
    rows = name_networks(results)
    attacked = rows[rows["eps"] > 0]
    two = attacked[attacked["row"] == TWO].groupby(["task", "seed"])["accuracy"].mean()
    many = attacked[attacked["row"] == MANY].groupby(["task", "read_out", "attack", "seed"])["accuracy"].mean()
    cases = [(task, read_out) for task in results.settings.tasks for read_out in (SUMMED, LARGEST)]
    norm = NORM_NAMES[results.settings.norm]
    return [
        *(
            Claim(
                "A network trained on all classes is more robust than one trained on two",
                SECTION,
                f"robust accuracy ({norm}), mean over radii: {name_network(read_out, READ_OUT)} minus 2-class",
                many[task, read_out, READ_OUT] - two[task],
                setting=f"{task}, {read_out}",
            )
            for task, read_out in cases
        ),
        *(
            Claim(
                "An attack on its own cross-entropy overestimates the robustness of a network trained on all classes",
                SECTION,
                f"accuracy ({norm}), mean over radii: {name_network(read_out, OWN)} minus the same under the attack "
                "on the read-out",
                many[task, read_out, OWN] - many[task, read_out, READ_OUT],
                setting=f"{task}, {read_out}",
                control=True,
            )
            for task, read_out in cases
        ),
    ]


EXPERIMENT = Experiment(
    id="E4",
    title="Robustness of networks trained on two classes and on all",
    paper="feature-averaging-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy on the two sides under PGD, against the radius. One network is trained on the two sides, the other "
        "on all classes (k-class). The latter predicts the side with the larger sum of logits or with the largest "
        "logit. One attack on the k-class network raises its own cross-entropy, another the loss of the read-out. In "
        'the table "either" counts an image as wrong if one of them succeeds. The choice of attack can reverse the '
        "order of the networks, and the slides do not name theirs. An attack on another loss than the read-out's "
        "overestimates robustness. Lines are means over seeds, bands standard deviations."
    ),
)
