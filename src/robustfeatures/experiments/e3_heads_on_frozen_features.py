"""E3: heads trained on frozen features to tell two classes or all of them apart: averaged and decoupled features.

feature-averaging-2025, Figure 1 on CIFAR-10. The slides show the matrices and define a cell, but give no other
setting; `measurements/feature_heads.py` states our choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

TWO_CLASSES, K_CLASSES, FEATURES = "2-class", "k-class", "features"
OWN_CLASS, OWN_SIDE, OTHER_SIDE = "own class", "other classes of its side", "classes of the other side"
WHOLE_SIDE = "classes of its side"
SECTION = "feature-averaging-2025, Figure 1 and the theorem on feature averaging"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The named training whose features are frozen, and gradient descent on the heads."""

    features: Name = "standard"
    learning_rate: PositiveFloat
    steps: PositiveInt
    initial_std: PositiveFloat = 1e-5


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed."""
    label = pieces.data().label
    return [
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


def add_relation(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column `relation`: the class of the feature relative to the class or side of the neuron."""
    half = (rows["feature"].max() + 1) // 2
    same_side = (rows["neuron"] < half) == (rows["feature"] < half)
    relation = same_side.map({True: OWN_SIDE, False: OTHER_SIDE})
    relation = relation.mask(rows["neuron"] == rows["feature"], OWN_CLASS)
    return rows.assign(relation=relation.mask(same_side & (rows["head"] == TWO_CLASSES), WHOLE_SIDE))


def table(results: Results) -> pd.DataFrame:
    """One line per head and relation: the mean cosine, and the accuracy of the head on its own classes."""
    from robustfeatures.experiments.shared.summaries import summarise_seeds

    rows = add_relation(results.measurements).assign(accuracy=percent(results.measurements["accuracy"]))
    values = ["cosine", "accuracy"]
    # The cosine of a feature with itself is 1.
    rows = rows[(rows["head"] != FEATURES) | (rows["relation"] != OWN_CLASS)]
    per_seed = rows.groupby(["head", "relation", "seed"], sort=False)[values].mean().reset_index()
    return summarise_seeds(per_seed, ["head", "relation"], values=values)


def figure(results: Results) -> Figure:
    """The cosine matrices, a panel per head, and of the features with one another."""
    from robustfeatures.experiments.shared.plots import heat_map

    return heat_map(
        results.measurements,
        row="neuron",
        column="feature",
        value="cosine",
        panel="head",
        label="cosine",
        xlabel="feature (class)",
        ylabel="neuron",
        limits=(-1.0, 1.0),
        cell="{:.1f}".format,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of the theorems and Figure 1 on the matrices, in hundredths of a cosine."""
    from robustfeatures.experiments.shared.claims import Claim

    rows = add_relation(results.measurements)
    mean = percent(rows.groupby(["head", "relation", "seed"])["cosine"].mean())
    own = rows[(rows["head"] == TWO_CLASSES) & (rows["relation"] == WHOLE_SIDE)]
    each = percent(own.groupby(["seed", "neuron"])["cosine"].agg(["min", "max"]))
    two = mean[TWO_CLASSES]
    return [
        Claim(
            "The 2-class head has large coefficients for the classes of its side, small ones for the other side",
            SECTION,
            "2-class, cosine x 100: own side minus other side",
            list(two[WHOLE_SIDE] - two[OTHER_SIDE]),
        ),
        Claim(
            "No coefficient of the 2-class head is much larger than others (taken as the least being half the largest)",
            SECTION,
            "2-class, cosine x 100 within the own side, mean over neurons: twice the least minus the largest",
            list((2 * each["min"] - each["max"]).groupby("seed").mean()),
        ),
        Claim(
            "The k-class head learns decoupled features: that of its own class, not those of the others",
            "feature-averaging-2025, the theorem on feature-decoupled solutions",
            "k-class, cosine x 100: own class minus other classes of its side",
            list(mean[K_CLASSES, OWN_CLASS] - mean[K_CLASSES, OWN_SIDE]),
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
        "Cosines between each neuron's weight and each class's feature, of heads trained on frozen features to tell "
        "the first half of the classes from the second (2-class) or all classes apart (k-class: mean over the neurons "
        "of a class), and of the features with one another. Features are class means of the frozen representation "
        "minus its overall mean. Means over seeds."
    ),
)
