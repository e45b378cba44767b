"""E3: heads trained on frozen features to tell two classes or all of them apart: averaged and decoupled features.

feature-averaging-2025, Figure 1. The slides show the matrices, under "Real-World Experiments", and define a cell, but
name no data set and give no other setting. The data set is our choice; `measurements/feature_heads.py` states the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.experiments.e1_feature_averaging import AVERAGING, DECOUPLING, find_least_share
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


TWO_CLASSES, K_CLASSES, FEATURES = "2-class", "k-class", "features"
OWN_CLASS, OWN_SIDE, OTHER_SIDE = "own class", "other classes of its side", "classes of the other side"
WHOLE_SIDE = "classes of its side"
FIGURE = "feature-averaging-2025, Figure 1"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The named training whose features are frozen, and gradient descent on the heads."""

    features: Name = "standard"
    """The training whose features are frozen."""
    learning_rate: PositiveFloat
    """The learning rate of gradient descent on the heads."""
    steps: PositiveInt
    """The number of steps."""
    initial_std: PositiveFloat = 1e-5
    """The standard deviation of the initial weights of a head."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """D, whose classes have names, and one measurement per seed."""
    label = pieces.data().label
    measured = [
        Need(
            "heads",
            seed,
            pieces.measurement(
                f"{label}-heads-on-{settings.features}",
                "measurements.feature_heads",
                {
                    "learning_rate": settings.learning_rate,
                    "steps": settings.steps,
                    "initial_std": settings.initial_std,
                    "precision": pieces.study.precision,
                    "seed": seed,
                },
                {"data": pieces.data(), "model": pieces.source_model(settings.features, seed)},
                seed=seed,
            ),
        )
        for seed in pieces.study.seeds
    ]
    return [Need("D", pieces.study.seeds[0], pieces.data()), *measured]


def add_relation(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column `relation`: the class of the feature relative to the class or side of the neuron."""
    half = (rows["feature"].max() + 1) // 2
    same_side = (rows["neuron"] < half) == (rows["feature"] < half)
    relation = same_side.map({True: OWN_SIDE, False: OTHER_SIDE})
    relation = relation.mask(rows["neuron"] == rows["feature"], OWN_CLASS)
    return rows.assign(relation=relation.mask(same_side & (rows["head"] == TWO_CLASSES), WHOLE_SIDE))


def table(results: Results) -> pd.DataFrame:
    """One line per head and relation: means of cosine and lambda D, and the accuracy of the head on its own classes."""
    rows = add_relation(results.measurements).assign(accuracy=percent(results.measurements["accuracy"]))
    values = ["cosine", "coefficient", "accuracy"]
    # The cosine of a feature with itself is 1.
    rows = rows[(rows["head"] != FEATURES) | (rows["relation"] != OWN_CLASS)]
    per_seed = rows.groupby(["head", "relation", "seed"], sort=False)[values].mean().reset_index()
    return summarise_seeds(per_seed, ["head", "relation"], values=values)


def figure(results: Results) -> Figure:
    """The cosine matrices, a panel per head, and of the features with one another."""
    from robustfeatures.experiments.shared.plots import heat_map
    from robustfeatures.pipeline.store.datasets import read_dataset

    (original,) = results.payloads.values()
    names = dict(enumerate(read_dataset(original, "train", in_memory=False).class_names))
    rows = results.measurements
    return heat_map(
        rows.assign(feature=rows["feature"].map(names)),
        # Both heads, and the claim on two classes, split the classes here.
        divide=len(names) // 2,
        row="neuron",
        column="feature",
        value="cosine",
        panel="head",
        label="cosine",
        xlabel="feature of the class",
        ylabel="neuron (2-class) or class",
        limits=(-1.0, 1.0),
        cell="{:.1f}".format,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Figure 1 on cosines. Controls: the theorems' orders of lambda D, 2 for O(1), a tenth for o(1)."""
    import numpy as np

    rows = add_relation(results.measurements)
    mean = percent(rows.groupby(["head", "relation", "seed"])["cosine"].mean())
    two, many = mean[TWO_CLASSES], mean[K_CLASSES]

    def coefficients(head: str, relations: Sequence[str]) -> pd.Series:
        part = rows[(rows["head"] == head) & rows["relation"].isin(relations)]
        return part.set_index(["seed", "neuron", "feature"])["coefficient"]

    own_side = coefficients(TWO_CLASSES, [WHOLE_SIDE])
    return [
        Claim(
            "Told two classes, neurons point to the classes of their side, not to those of the other side",
            FIGURE,
            "2-class, cosine x 100: own side minus other side",
            two[WHOLE_SIDE] - two[OTHER_SIDE],
        ),
        Claim(
            "Told all classes, neurons point to their own class, not to the others",
            FIGURE,
            "k-class, cosine x 100: own class minus the larger mean of the other classes of both sides",
            many[OWN_CLASS] - np.maximum(many[OWN_SIDE], many[OTHER_SIDE]),
        ),
        Claim(
            "Told two classes, no neuron learns one class of its side much more than another (at most twice)",
            f"control of {AVERAGING}",
            "2-class: least over largest lambda of a neuron's own side in percent, least over neurons",
            find_least_share(own_side).groupby("seed").min(),
            threshold=50.0,
            control=True,
        ),
        Claim(
            "Told two classes, neurons learn little of the other side's classes (at most a tenth)",
            f"control of {AVERAGING}",
            "2-class: a tenth of the least lambda D of the own side minus the largest of the other side",
            own_side.groupby("seed").min() / 10 - coefficients(TWO_CLASSES, [OTHER_SIDE]).groupby("seed").max(),
            control=True,
        ),
        Claim(
            "Told all classes, neurons learn little of other classes (at most a tenth)",
            f"control of {DECOUPLING}",
            "k-class: a tenth of the least lambda D of the own class minus the largest |lambda D| of another one",
            coefficients(K_CLASSES, [OWN_CLASS]).groupby("seed").min() / 10
            - coefficients(K_CLASSES, [OWN_SIDE, OTHER_SIDE]).abs().groupby("seed").max(),
            control=True,
        ),
    ]


EXPERIMENT = Experiment(
    id="E3",
    title="Averaged and decoupled features on real images",
    paper="feature-averaging-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Cosines between each neuron's weight and each class's feature, of heads trained on frozen features. The "
        "2-class head tells the first half of the classes from the second. The k-class head tells all classes apart; "
        "its cosines are means over the neurons of a class. The first panel has the cosines of the features with one "
        "another; its rows are classes. White lines divide the two halves of the classes. Features are class means of "
        "the frozen representation minus its overall mean. Means over seeds. In the table, the coefficient of a class "
        "is lambda D. It is the sum of what its images add to a weight in all steps of gradient descent."
    ),
)
