"""E1: the features that neurons learn on clusters, with two classes or with one class per cluster.

feature-averaging-2025, Figure 1 (synthetic) and the theorems on feature averaging and feature decoupling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SECTION = "feature-averaging-2025, Figure 1"
BY = ["network", "centre_is"]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Sizes and training of the networks; the slides print none of them.

    `neurons` is m, for each class of both networks; `deviation` is the standard deviation of the initialisation.
    """

    clusters: Annotated[int, Ge(2)] = 10
    dimension: Annotated[int, Ge(1)] = 3072
    samples: Annotated[int, Ge(1)] = 1000
    neurons: Annotated[int, Ge(1)] = 5
    deviation: Annotated[float, Gt(0)] = 1e-5
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    steps: Annotated[int, Ge(1)] = 100
    test_samples: Annotated[int, Ge(1)] = 1000


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed, of both networks on the same points."""
    return [
        Need(
            "networks",
            seed,
            pieces.measurement(
                "clusters", "theory.feature_averaging", {**asdict(settings), "seed": seed}, {}, seed=seed
            ),
        )
        for seed in pieces.study.seeds
    ]


def _mark_own_centres(results: Results) -> pd.DataFrame:
    """The rows with `centre_is`: whether a centre is the neuron's own (of its class or side) or another one."""
    rows = results.measurements
    neurons = rows.groupby("network")["neuron"].transform("max") + 1
    clusters = rows["centre"].max() + 1
    same_side = (2 * rows["neuron"] >= neurons) == (2 * rows["centre"] >= clusters)
    same_class = rows["neuron"] == rows["centre"]
    own = same_side.where(rows["network"] == "2-class", same_class)
    return rows.assign(centre_is=own.map({True: "own", False: "other"}), accuracy=percent(rows["accuracy"]))


def table(results: Results) -> pd.DataFrame:
    """Per network and kind of centre: the mean cosine and coefficient of a seed's neurons, and their extremes."""
    from robustfeatures.experiments.shared.summaries import summarise_seeds

    grouped = _mark_own_centres(results).groupby([*BY, "seed"], sort=False)
    found = grouped.agg(
        cosine=("cosine", "mean"),
        least_cosine=("cosine", "min"),
        largest_cosine=("cosine", "max"),
        coefficient=("coefficient", "mean"),
        accuracy=("accuracy", "first"),
    ).reset_index()
    quantities = ["cosine", "least_cosine", "largest_cosine", "coefficient", "accuracy"]
    return summarise_seeds(found, BY, values=quantities)


def figure(results: Results) -> Figure:
    """Cosines of each neuron's weight with each centre, mean over seeds: flat blocks, and a diagonal."""
    from robustfeatures.experiments.shared.plots import heat_map

    return heat_map(
        results.measurements.assign(
            neuron=results.measurements["neuron"] + 1, centre=results.measurements["centre"] + 1
        ),
        panel="network",
        row="neuron",
        column="centre",
        value="cosine",
        label="cosine",
        xlabel="cluster centre",
        ylabel="neuron (k-class: class)",
        limits=(-1.0, 1.0),
        cell="{:.2f}".format,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of the two theorems, with 2 for O(1) and 0.1 for o(1)."""
    from robustfeatures.experiments.shared.claims import Claim

    rows = _mark_own_centres(results)

    def per_seed(network: str, centre_is: str, how: str) -> pd.Series:
        part = rows[(rows["network"] == network) & (rows["centre_is"] == centre_is)]
        values = part["coefficient"].abs() if centre_is == "other" else part["coefficient"]
        found: pd.Series = values.groupby(part["seed"]).agg(how)
        return found

    def accuracies(network: str) -> pd.Series:
        found: pd.Series = rows[rows["network"] == network].groupby("seed")["accuracy"].first()
        return found

    ratio = per_seed("2-class", "own", "max") / per_seed("2-class", "own", "min")
    compared: Mapping[str, tuple[str, str, pd.Series]] = {
        "Told two classes, no neuron holds one centre of its side much more than another (at most twice)": (
            "feature-averaging-2025, Theorem (Feature Averaging)",
            "2-class: two minus the largest over the least lambda of the own side",
            2 - ratio,
        ),
        "Told two classes, neurons hold little of the other side's centres (at most a tenth)": (
            "feature-averaging-2025, Theorem (Feature Averaging)",
            "2-class: 10 minus the largest |lambda| of the other side in percent of the least of the own",
            10 - percent(per_seed("2-class", "other", "max") / per_seed("2-class", "own", "min")),
        ),
        "Told all clusters, neurons hold little of other clusters' centres (at most a tenth)": (
            "feature-averaging-2025, Theorem (Feature-Decoupled Solutions)",
            "k-class: 10 minus the largest |lambda| of another cluster in percent of the least of the own",
            10 - percent(per_seed("k-class", "other", "max") / per_seed("k-class", "own", "min")),
        ),
        "The network told two classes has a perfect standard accuracy (99 of 100)": (
            "feature-averaging-2025, Theorem (Feature Averaging)",
            "2-class: accuracy on fresh points minus 99",
            accuracies("2-class") - 99,
        ),
        "The network told all clusters has a perfect standard accuracy (99 of 100)": (
            SECTION,
            "k-class: accuracy on fresh points minus 99",
            accuracies("k-class") - 99,
        ),
    }
    return [
        Claim(sentence, source, quantity, list(values)) for sentence, (source, quantity, values) in compared.items()
    ]


EXPERIMENT = Experiment(
    id="E1",
    title="Averaged and decoupled features",
    paper="feature-averaging-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Cosine of each neuron's weight with each cluster centre, mean over seeds, after gradient descent on the sides "
        "of the clusters (2-class; neurons of the positive side first) and on the clusters themselves (k-class; mean "
        "over the neurons of each class)."
    ),
)
