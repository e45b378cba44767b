"""C3: standard, half-half and robust training. at-odds-2019, Appendix B and Table 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import (
    NORM_NAMES,
    PAPER,
    STANDARD,
    AdversarialTrainings,
    RadiiPerNorm,
    make_network,
    round_eps,
)
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, summarise_seeds
from robustfeatures.experiments.shared.units import CORRELATIONS
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Appendix B and Table 4"
# The share of natural images in each batch.
NATURAL = {"half-half": 0.5, "robust": 0.0}
# Fewer radii, over both norms, show no trend.
FEWEST_RADII = 4


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Training radii per norm; the attack has the same radius."""

    eps: RadiiPerNorm
    """The training radii of each norm."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per norm, radius, training and seed, at the training radius."""
    found = []
    for seed in pieces.study.seeds:
        for norm, radii in settings.eps.items():
            standard = make_network(pieces, settings, seed, norm, 0.0)
            for eps in radii:
                trained = {STANDARD: standard} | {
                    name: make_network(pieces, settings, seed, norm, eps, natural=natural)
                    for name, natural in NATURAL.items()
                }
                columns: dict[str, str | int | float] = {"norm": NORM_NAMES[norm], "eps_train": round_eps(eps)}
                found += [
                    Need(name, seed, pieces.evaluation(model, eps=(0.0, eps), norm=norm), columns)
                    for name, model in trained.items()
                ]
    return found


def _name_attacks(results: Results) -> pd.DataFrame:
    """The accuracies with the column `under`: "no attack" or "attack", with the training radius."""
    rows = results.evaluations
    return rows.assign(under=rows["eps"].map(lambda eps: "attack" if eps > 0 else "no attack"))


def table(results: Results) -> pd.DataFrame:
    """One line per norm, radius, training, and attack or none."""
    by = ["norm", "eps_train", "row", "under"]
    return add_published(summarise_seeds(_name_attacks(results), by), results, by)


def figure(results: Results) -> Figure:
    """A panel without attack and one under attack: a group of bars per radius, a bar per training."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    printed = results.comparable_rows
    return grouped_bars(
        _name_bars(_name_attacks(results)).sort_values("under", ascending=False, kind="stable"),
        group="budget",
        bar="row",
        bar_label=lambda row: f"{row} training",
        panel="under",
        xlabel="radius of training and attack",
        published=None if printed is None else _name_bars(printed),
    )


def _name_bars(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(budget=rows["norm"] + " " + rows["eps_train"].map("{:g}".format))


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix B on Table 4, averaged over all radii of a norm."""
    rows = _name_attacks(results)
    found = _claims_on_proportion(rows)
    for norm in rows["norm"].unique():
        of_norm = rows[rows["norm"] == norm]
        found += [
            Claim(
                "Half-half training has better accuracy on clean images than robust training",
                SOURCE,
                "clean accuracy: half-half minus robust, mean over eps_train",
                _compare(of_norm, "half-half", "robust", "no attack"),
                setting=norm,
            ),
            Claim(
                "Half-half training has less robust accuracy than robust training",
                SOURCE,
                "accuracy under attack: robust minus half-half, mean over eps_train",
                _compare(of_norm, "robust", "half-half", "attack"),
                setting=norm,
            ),
            Claim(
                "Half-half training too lowers accuracy on clean images",
                SOURCE,
                "clean accuracy: standard minus half-half, mean over eps_train",
                _compare(of_norm, STANDARD, "half-half", "no attack"),
                setting=norm,
            ),
        ]
    return found


def _compare(rows: pd.DataFrame, more: str, less: str, under: str) -> pd.Series:
    """By seed, the accuracy of training `more` minus that of `less`, mean over eps_train."""
    rows = rows[rows["row"].isin([more, less])]
    means = rows[rows["under"] == under].groupby(["seed", "row"])["accuracy"].mean().unstack("row")
    return keep_learned(means[more] - means[less], rows, under="no attack")


def _claims_on_proportion(rows: pd.DataFrame) -> list[Claim]:
    """A claim on what half-half training gains and loses, if there are enough radii for a trend."""
    import pandas as pd

    from robustfeatures.experiments.shared.sweeps import rank_correlation

    wide = rows.pivot_table(index=["seed", "norm", "eps_train"], columns=["row", "under"], values="accuracy")
    gained = wide["half-half", "no attack"] - wide["robust", "no attack"]
    lost = wide["robust", "attack"] - wide["half-half", "attack"]
    if gained.groupby("seed").size().min() < FEWEST_RADII:
        return []
    found = {seed: rank_correlation(list(part), list(lost[part.index])) for seed, part in gained.groupby("seed")}
    return [
        Claim(
            "What half-half training gains on clean images it loses under attack, roughly in proportion",
            SOURCE,
            "Spearman's rank correlation of gain and loss over norms and radii",
            keep_learned(pd.Series(found), rows, under="no attack"),
            of_images=False,
            bounds=CORRELATIONS,
        )
    ]


EXPERIMENT = Experiment(
    id="C3",
    title="Half natural, half adversarial",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "training", "eps_train": "training eps"},
    caption=(
        "Accuracy on the test split, clean and under {attack} with the radius of training. Robust training is "
        "adversarial training. Batches of half-half training are half natural and half adversarial. Bars are means, "
        "whiskers standard deviations, dots the seeds."
    ),
)
