"""X2: learning from unperturbed images whose labels are the errors of another network.

A control for D_det after Wallace (2019), "Learning from Incorrectly Labeled Data" (distill.pub, discussion of
not-bugs-2019, response 6): errors carry the learned features of the network that makes them. Wallace stops a
ResNet-18 after two epochs on CIFAR-10 (62.5 % of the train images right), trains another on the 18 768 images that the
first gets wrong, labelled as it labels them, and reaches 49.7 % on the test split. The first network has to be stopped
early or be small: a good one makes few errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.derived.settings import Misclassified
from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.a2_random_and_deterministic_targets import LABEL_SHIFTS
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    LEAST_LEARNED,
    above_learned,
    add_published,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import DOWNSTREAM_SEED, Pieces
from robustfeatures.pipeline.study.parameters import Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "Wallace (2019), Learning from Incorrectly Labeled Data"
WEAK, ERRORS, DETERMINISTIC = "D, stopped early", "errors", "D_det"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The two trainings and their network."""

    source: str
    """The training on D that stops early."""
    training: str
    """The training on its errors."""
    architecture: Name | None = None
    """A name of `other_architectures`, for both; by default the network of the study."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Per seed: the network that makes the errors, the one that learns from them, and A2's that learns from D_det."""
    found = []
    for seed in pieces.study.seeds:
        data = pieces.data()
        source = pieces.source_model(settings.source, seed, architecture=settings.architecture)
        inputs = {"data": data, "source": source}
        errors = pieces.derived_with(f"{data.label}-errors", Misclassified(kind="errors"), seed, inputs)
        label = f"{data.label}-on-errors-{settings.training}"
        learned = pieces.model(
            label,
            settings.training,
            seed,
            {"data": errors},
            architecture=settings.architecture,
            seed_offset=DOWNSTREAM_SEED,
        )
        models = {WEAK: source, ERRORS: learned, DETERMINISTIC: pieces.downstream_model("D_det", seed)}
        found += [
            Need(row, seed, pieces.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS))
            for row, model in models.items()
        ]
        on_train = pieces.evaluation(source, eps=(0.0,), split="train")
        found.append(Need(f"{WEAK} (tested on the train split)", seed, on_train))
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per training set; that tested on the train split says how many errors there were to learn from."""
    return add_published(summarise_seeds(results.clean, ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """One bar per training set."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(results.clean, group="row", bar="eps", bar_label=lambda eps: "clean", xlabel="trained on")


def claims(results: Results) -> list[Claim]:
    """Wallace's claim on a network trained only on wrong labels."""
    return [
        Claim(
            "A model trained on mislabelled, unperturbed images alone generalises to the original test set (taken as "
            f"{LEAST_LEARNED})",
            SECTION,
            f"clean accuracy: errors minus {LEAST_LEARNED}",
            above_learned(
                select_by_seed(results.clean, row=ERRORS), select_by_seed(results.clean, value="chance", row=ERRORS)
            ),
            control=True,
        )
    ]


EXPERIMENT = Experiment(
    id="X2",
    title="Learning from errors",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on"},
    caption=(
        "Clean accuracy on the test split of D, unless stated otherwise, of a network stopped early. Errors are the "
        "train images that it misclassifies, unperturbed and labelled as it labels them. Beside it are networks "
        "trained on these errors and on D_det. The study may give the errors another architecture than D_det has. Bars "
        "are means, whiskers standard deviations, dots the seeds."
    ),
)
