"""E1: the features that neurons learn on clusters, with two classes or with one class per cluster.

feature-averaging-2025, the theorems on feature averaging and feature decoupling. The slides print an initialisation and
the order of the rate, and no sizes. Their one Figure 1 is under "Real-World Experiments". They name no data set, and no
setting of synthetic points. The small initialisation, its rate and the sizes are this project's own. The theorem's
ratio O(1) depends on the initialisation, so both initialisations are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from robustfeatures.engine.settings import Fraction, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import SHARES, percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


AVERAGING = "feature-averaging-2025, Theorem (Feature Averaging)"
DECOUPLING = "feature-averaging-2025, Theorem (Feature-Decoupled Solutions)"
TWO_CLASSES, K_CLASSES = "2-class", "k-class"
SMALL, UNEQUAL = "small initialisation", "small initialisation, unequal sides"
OWN, OTHER = "own", "other"
BY = ["start", "network", "centre_is"]


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Sizes and training of the networks.

    The slides print none of them; they are our choice.
    """

    clusters: Annotated[int, Ge(2)] = 10
    """The number of clusters, k."""
    dimension: Annotated[int, Ge(1)] = 3072
    """The dimension, d."""
    samples: Annotated[int, Ge(1)] = 1000
    """The number of training points, n."""
    neurons: Annotated[int, Ge(1)] = 5
    """The neurons of each class of both networks, m."""
    deviation: Annotated[float, Gt(0)] = 1e-5
    """The standard deviation of the small initialisation."""
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    """The learning rate of gradient descent."""
    steps: Annotated[int, Ge(1)] = 100
    """The number of steps, T."""
    test_samples: Annotated[int, Ge(1)] = 1000
    """The number of test points."""


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The training from the small initialisation, and its variants."""

    training: Training = field(default_factory=Training)
    """The training from the small initialisation."""
    printed_steps: Sequence[PositiveInt] = (100, 3000)
    """Numbers of steps from the initialisation that the slides print; the theorem has T = Theta(poly(d))."""
    positive_share: Fraction = 0.3
    """The share of clusters in J_+ with unequal sides."""


def as_printed(training: Training, steps: int) -> dict[str, Any]:
    """The training with the slides' initialisation: w variance 1/d, b variance 1/d^2, and the rate 1/sqrt(d)."""
    root = training.dimension**-0.5
    return {
        **asdict(training),
        "deviation": root,
        "bias_deviation": 1 / training.dimension,
        "learning_rate": root,
        "steps": steps,
    }


def check_dimension(clusters: int, dimension: int, where: str) -> None:
    """Check that orthogonal centres fit.

    Raises:
        UserError: they do not; the message begins with `where`.
    """
    if clusters > dimension:
        raise UserError(f"{where}: {clusters} orthogonal centres do not fit into {dimension} dimensions")


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per start and seed, of both networks on the same points.

    Raises:
        UserError: the clusters are more than the dimensions.
    """
    check_dimension(settings.training.clusters, settings.training.dimension, "experiments.E1.training.clusters")
    starts: Mapping[str, dict[str, Any]] = {
        SMALL: asdict(settings.training),
        **{
            f"initialisation as printed, {steps} steps": as_printed(settings.training, steps)
            for steps in settings.printed_steps
        },
        UNEQUAL: {**asdict(settings.training), "positive_share": settings.positive_share},
    }
    return [
        Need(
            "networks",
            seed,
            pieces.simulation("clusters", "theory.feature_averaging", asked, seed),
            {"start": start},
        )
        for start, asked in starts.items()
        for seed in pieces.study.seeds
    ]


def _mark_own_centres(results: Results) -> pd.DataFrame:
    """The rows with `centre_is`: whether a centre is the neuron's own (of its class or side) or another one."""
    rows = results.measurements
    return rows.assign(centre_is=rows["own"].map({True: OWN, False: OTHER}), accuracy=percent(rows["accuracy"]))


def table(results: Results) -> pd.DataFrame:
    """Per start, network and kind of centre: the mean cosine and lambda d of a seed's neurons, and their extremes."""
    grouped = _mark_own_centres(results).groupby([*BY, "seed"], sort=False)
    found = grouped.agg(
        cosine=("cosine", "mean"),
        coefficient=("coefficient", "mean"),
        least_coefficient=("coefficient", "min"),
        largest_coefficient=("coefficient", "max"),
        accuracy=("accuracy", "first"),
    ).reset_index()
    quantities = ["cosine", "coefficient", "least_coefficient", "largest_coefficient", "accuracy"]
    return summarise_seeds(found, BY, values=quantities)


def figure(results: Results) -> Figure:
    """Cosines of each neuron's weight with each centre, mean over seeds: flat blocks, and a diagonal.

    From the printed initialisation cosines are several times smaller, so each start has a scale of its own.
    """
    from robustfeatures.experiments.shared.plots import heat_map

    rows = results.measurements
    means = rows.groupby(["start", "network", "neuron", "centre"])["cosine"].mean()
    largest = means.abs().groupby("start").max()
    return heat_map(
        rows.assign(
            neuron=rows["neuron"] + 1,
            centre=rows["centre"] + 1,
            panel=rows["network"] + ", " + rows["start"],
            share=rows["cosine"] / rows["start"].map(largest),
        ),
        panel="panel",
        row="neuron",
        column="centre",
        value="cosine",
        colour="share",
        label="cosine / largest |cosine| of the same start",
        xlabel="cluster centre",
        ylabel="neuron (k-class: class)",
        limits=(-1.0, 1.0),
        cell="{:.2f}".format,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of the two theorems from each start: 1 for Omega(1), 2 for O(1), a tenth for o(1) beside Omega(1)."""
    rows = _mark_own_centres(results)
    return [
        claim
        for start, part in rows.groupby("start", sort=False)
        for claim in (*_claims_on_two_classes(str(start), part), *_claims_on_clusters(str(start), part))
    ]


def _coefficients(rows: pd.DataFrame, network: str, centre_is: str) -> pd.Series:
    """lambda d, indexed by seed, neuron and centre."""
    part = rows[(rows["network"] == network) & (rows["centre_is"] == centre_is)]
    return part.set_index(["seed", "neuron", "centre"])["coefficient"]


def _least(rows: pd.DataFrame, network: str) -> pd.Series:
    return _coefficients(rows, network, OWN).groupby("seed").min()


def _largest_other(rows: pd.DataFrame, network: str, *, absolute: bool) -> pd.Series:
    other = _coefficients(rows, network, OTHER)
    return (other.abs() if absolute else other).groupby("seed").max()


def _accuracies(rows: pd.DataFrame, network: str) -> list[float]:
    return list(rows[rows["network"] == network].groupby("seed")["accuracy"].first())


def _claims_on_two_classes(start: str, rows: pd.DataFrame) -> list[Claim]:
    return [
        Claim(
            "Told two classes, every neuron learns all centres of its side (lambda d at least 1)",
            AVERAGING,
            "2-class: least lambda d of the own side",
            _least(rows, TWO_CLASSES),
            threshold=1.0,
            setting=start,
        ),
        Claim(
            "Told two classes, no neuron learns one centre of its side much more than another (at most twice)",
            AVERAGING,
            "2-class: least over largest lambda of a neuron's own side in percent, least over neurons",
            find_least_share(_coefficients(rows, TWO_CLASSES, OWN)).groupby("seed").min(),
            threshold=50.0,
            setting=start,
            bounds=SHARES,
        ),
        Claim(
            "Told two classes, neurons learn little of the other side's centres (at most a tenth)",
            AVERAGING,
            "2-class: a tenth of the least lambda d of the own side minus the largest of the other side",
            _least(rows, TWO_CLASSES) / 10 - _largest_other(rows, TWO_CLASSES, absolute=False),
            setting=start,
        ),
        Claim(
            "Told two classes, neurons do not learn the other side's centres with the opposite sign (at most a tenth)",
            AVERAGING,
            "2-class: a tenth of the least lambda d of the own side minus the largest |lambda d| of the other side",
            _least(rows, TWO_CLASSES) / 10 - _largest_other(rows, TWO_CLASSES, absolute=True),
            setting=start,
            control=True,
        ),
        Claim(
            "Told two classes, a weight is nearly proportional to the sum of its side's centres (cosine at least 0.9)",
            AVERAGING,
            "2-class: cosine x 100 of a weight with the sum of its side's centres, least over neurons",
            percent(_cosines_with_own_sum(rows)).groupby("seed").min(),
            threshold=90.0,
            setting=start,
        ),
        Claim(
            "The network told two classes has a perfect standard accuracy (99 of 100)",
            AVERAGING,
            "2-class: accuracy on fresh points",
            _accuracies(rows, TWO_CLASSES),
            threshold=99.0,
            setting=start,
            bounds=SHARES,
        ),
    ]


def _claims_on_clusters(start: str, rows: pd.DataFrame) -> list[Claim]:
    return [
        Claim(
            "Told all clusters, neurons learn their own cluster's centre (lambda d at least 1)",
            DECOUPLING,
            "k-class: least lambda d of the own cluster",
            _least(rows, K_CLASSES),
            threshold=1.0,
            setting=start,
        ),
        Claim(
            "Told all clusters, neurons learn little of other clusters' centres (at most a tenth)",
            DECOUPLING,
            "k-class: a tenth of the least lambda d of the own cluster minus the largest |lambda d| of another one",
            _least(rows, K_CLASSES) / 10 - _largest_other(rows, K_CLASSES, absolute=True),
            setting=start,
        ),
        Claim(
            "The network told all clusters has a perfect standard accuracy (99 of 100)",
            DECOUPLING,
            "k-class: accuracy on fresh points",
            _accuracies(rows, K_CLASSES),
            threshold=99.0,
            setting=start,
            control=True,
            bounds=SHARES,
        ),
    ]


def find_least_share(coefficients: pd.Series) -> pd.Series:
    """Each neuron's least coefficient in percent of its largest, by seed and neuron; 0 if none is positive."""
    ends = coefficients.groupby(["seed", "neuron"]).agg(["min", "max"])
    return percent(ends["min"] / ends["max"]).where(ends["max"] > 0, 0.0)


def _cosines_with_own_sum(rows: pd.DataFrame) -> pd.Series:
    """The cosine of each 2-class neuron's weight with the sum of its side's centres, which are orthogonal."""
    own = rows[(rows["network"] == TWO_CLASSES) & rows["own"]].groupby(["seed", "neuron"])["cosine"]
    return own.sum() / own.count() ** 0.5


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
        "Cosine of each neuron's weight with each cluster centre, mean over seeds. The 2-class network learned the two "
        "groups of clusters, the sides; its neurons of the positive side come first. The k-class network learned the "
        "clusters themselves. Its cosines are means over the neurons of each class. Colours are relative to the "
        "largest |cosine| of both networks with the same initialisation. The small initialisation and all sizes are "
        "our choice. The printed one, the only one that the slides have, has the variance 1/d of weights and 1/d^2 of "
        "biases, and the rate 1/sqrt(d). In the table coefficients are lambda d."
    ),
)
