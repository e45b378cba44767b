"""X1: the share of D_rand's accuracy that may come from leaked robust features.

A control after Goh (2019), "Robust Feature Leakage" (distill.pub, doi 10.23915/distill.00019.2). The method is in
`robustfeatures.measurements.leakage`. Goh trains a linear model on the robust linear features of D_rand. It
reaches an accuracy of 23.5 % on CIFAR-10. He prints "out of 88%"; Table 1 of the paper has 63.3 % for D_rand on
CIFAR-10. For D_det he finds no evidence of leakage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveFloat, Strict
from robustfeatures.experiments import a2_random_and_deterministic_targets as a2
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, select_by_seed, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_rand", "D_det")
SECTION = "Goh (2019), Robust Feature Leakage"
LINEAR, NETWORK = "robust linear features", "network"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The radius. The network is `linear` of `other_architectures`, and its training on D is `adversarial`."""

    eps: PositiveFloat = 0.25
    """The radius at which the linear network is attacked."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed, and A2's evaluations of networks with all features."""
    networks = [need for need in a2.needs(pieces, a2.Settings()) if need.row in ("D", *DERIVED_SETS)]
    names = {name: name for name in DERIVED_SETS}
    linear = [Need(LINEAR, seed, make_leakage(pieces, settings, seed, names)) for seed in pieces.study.seeds]
    return [*linear, *networks]


def make_leakage(
    pieces: Pieces, settings: Settings, seed: int, names: Mapping[str, str], *, suffix: str = ""
) -> Recipe:
    """The measurement on D and on derived sets, which the study has under the values of `names`.

    Its rows have the keys of `names`; its label ends with `suffix`.
    """
    model = pieces.source_model("adversarial", seed, architecture="linear")
    derived = {row: pieces.derived(name, seed) for row, name in names.items()}
    return pieces.measurement(
        f"{pieces.data().label}-leakage{suffix}",
        "measurements.leakage",
        {"eps": settings.eps},
        {"data": pieces.data(), "model": model, **derived},
        seed=seed,
    )


def _accuracies(results: Results) -> pd.DataFrame:
    """Columns row (the training set), features, seed, accuracy."""
    import pandas as pd

    measured = results.measurements
    linear = measured.assign(row=measured["trained_on"], features=LINEAR, accuracy=percent(measured["accuracy"]))
    clean = results.clean.assign(features=NETWORK)
    columns = ["row", "features", "seed", "accuracy"]
    return pd.concat([linear[columns], clean[columns]], ignore_index=True).assign(eps=0.0)


def table(results: Results) -> pd.DataFrame:
    """One line per training set and kind of features."""
    columns = ["row", "features", "eps"]
    return add_published(summarise_seeds(_accuracies(results), columns), results, columns)


def figure(results: Results) -> Figure:
    """Two bars per training set: robust linear features, and the network."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        _accuracies(results),
        group="row",
        bar="features",
        xlabel="trained on",
    )


def claims(results: Results) -> list[Claim]:
    """Goh's claims on D_rand and D_det, and the robustness of his features here."""
    rows = _accuracies(results)
    chance = results.chance
    linear = {name: select_by_seed(rows, row=name, features=LINEAR) for name in DERIVED_SETS}
    network = select_by_seed(rows, row="D_rand", features=NETWORK)
    robust = results.measurements[results.measurements["trained_on"] == "D"].set_index("seed")
    at = f"at eps {results.settings.eps:g}"
    return [
        Claim(
            "Part of D_rand's accuracy leaks in through robust linear features",
            SECTION,
            "accuracy on D of D_rand's robust linear features minus chance",
            linear["D_rand"] - chance,
            control=True,
        ),
        Claim(
            "The robust linear features of D_det do not help on D",
            SECTION,
            "chance minus accuracy on D of D_det's robust linear features",
            chance - linear["D_det"],
            control=True,
        ),
        Claim(
            "Most of D_rand's accuracy does not leak in through robust linear features (taken as half, above chance)",
            SECTION,
            "D_rand, accuracy on D above chance: half of the network's minus that of the robust linear features",
            keep_learned((network - chance) / 2 - (linear["D_rand"] - chance), results.clean, row="D_rand"),
            control=True,
        ),
        Claim(
            "For four fifths of the test images or more, the linear network predicts one class in the whole ball",
            SECTION,
            f"share of test images {at} minus 80 %",
            percent(robust["stable"]) - 80,
            control=True,
        ),
        Claim(
            "Each of the linear features is robustly useful for its class",
            SECTION,
            f"least robust usefulness of a feature {at}, in standard deviations of the feature; all images weigh the "
            "same (Goh does not say how he weights the classes)",
            robust["usefulness"],
            control=True,
            of_images=False,
        ),
    ]


EXPERIMENT = Experiment(
    id="X1",
    title="Robust-feature leakage",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on"},
    caption=(
        "Accuracy on the test split of D of logistic regression on robust linear features, trained on D, D_rand and "
        "D_det. The features are the logits of a linear network trained adversarially on D. Beside it are networks "
        "with all features. What the regression learns from D_rand and D_det, above chance, is leaked robust features. "
        "Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
