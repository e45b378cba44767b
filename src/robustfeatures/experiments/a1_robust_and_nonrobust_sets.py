"""A1: models trained on D, adversarially on D, and on D_R and D_NR from images and from noise.

not-bugs-2019, Section 3.1, Figure 2 and Table 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE_MODELS = ("standard", "adversarial")
DERIVED_SETS = ("D_NR", "D_R")
SECTION = "not-bugs-2019, Section 3.1 and Table 7"
# At Table 7's other radius, 0.5, three of the compared rows are 0.0.
COMPARED_EPS = 0.25

Starts = Annotated[tuple[Literal["images", "noise"], ...], MinLen(1), Distinct]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A1 takes the radii and the attacks from the study's `robustness`."""

    starts: Starts = ("images", "noise")
    """What the inversions of D_R and D_NR start from. Each start costs two inversions of D and two trainings."""


def find_networks(pieces: Pieces, seed: int, starts: Starts) -> dict[str, Recipe]:
    """The networks of A1 by row."""
    sets = [f"{name}-{start}" for name in DERIVED_SETS for start in starts]
    networks = {name: pieces.source_model(name, seed) for name in SOURCE_MODELS}
    return networks | {name: pieces.downstream_model(name, seed) for name in sets}


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per row and seed."""
    radii = (0.0, *pieces.robustness.eps)
    return [
        Need(row, seed, pieces.evaluation(network, eps=radii))
        for seed in pieces.study.seeds
        for row, network in find_networks(pieces, seed, settings.starts).items()
    ]


def table(results: Results) -> pd.DataFrame:
    """One line per row and radius."""
    return add_published(summarise_seeds(results.evaluations, ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """Bars per training set, one per radius, as in Figure 2b."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        results.evaluations,
        group="row",
        bar="eps",
        bar_label=results.name_radius,
        xlabel="trained on (standard training, but for 'adversarial')",
        published=results.comparable_rows,
    )


def choose_eps(evaluations: pd.DataFrame) -> float:
    """The radius at which claims compare: 0.25, or where the study has no such radius, its smallest."""
    radii = [float(eps) for eps in evaluations["eps"].unique() if eps > 0]
    return COMPARED_EPS if COMPARED_EPS in radii else min(radii)


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.1 on these rows, at the radius of `choose_eps`."""
    return [*_claims_on_robustness(results), *_claims_on_standard_accuracy(results)]


def _claims_on_robustness(results: Results) -> list[Claim]:
    eps = choose_eps(results.evaluations)
    at = f"robust accuracy at eps {eps:g}"

    def robust(row: str) -> pd.Series:
        return select_by_seed(results.evaluations, row=row, eps=eps)

    compared = (
        ("Standard training on D_R gives more robustness than on D", "D_R-{}", "standard"),
        ("Standard training on D_R gives more robustness than on D_NR", "D_R-{}", "D_NR-{}"),
        ("Adversarial training on D is more robust than standard training on D_R", "adversarial", "D_R-{}"),
    )
    return [
        Claim(
            sentence,
            SECTION,
            f"{at}: {more.format(start)} minus {less.format(start)}",
            _keep_learned(
                robust(more.format(start)) - robust(less.format(start)),
                results,
                more.format(start),
                less.format(start),
            ),
            setting=f"from {start}",
        )
        for sentence, more, less in compared
        for start in results.settings.starts
    ] + [
        Claim(
            "Training on D_NR yields almost no robustness (0.82 and 1.50 of 87.68 and 45.60: taken as a tenth)",
            SECTION,
            f"D_NR-{start}: a tenth of clean accuracy minus {at}",
            _keep_learned(
                0.1 * _clean_accuracy(results, f"D_NR-{start}") - robust(f"D_NR-{start}"), results, f"D_NR-{start}"
            ),
            setting=f"from {start}",
        )
        for start in results.settings.starts
    ]


def _claims_on_standard_accuracy(results: Results) -> list[Claim]:
    starts = results.settings.starts
    standard = _clean_accuracy(results, "standard")
    found = [
        Claim(
            "Training on D_R attains good standard accuracy (85.40 and 84.10 of 95.25: taken as four fifths)",
            SECTION,
            f"clean accuracy: D_R-{start} minus four fifths of standard",
            _keep_learned(_clean_accuracy(results, f"D_R-{start}") - 0.8 * standard, results),
            setting=f"from {start}",
        )
        for start in starts
    ]
    if "images" in starts:
        found.append(
            Claim(
                "Training on D_NR leads to good standard accuracy (87.68 of 95.25: taken as nine tenths)",
                SECTION,
                "clean accuracy: D_NR-images minus nine tenths of standard",
                _keep_learned(_clean_accuracy(results, "D_NR-images") - 0.9 * standard, results),
                setting="from images",
            )
        )
    if {"images", "noise"} <= set(starts):
        found.append(
            Claim(
                "D_NR from noise leads to a worse standard accuracy than D_NR from images",
                "not-bugs-2019, Appendix D.1",
                "clean accuracy: D_NR-images minus D_NR-noise",
                _clean_accuracy(results, "D_NR-images") - _clean_accuracy(results, "D_NR-noise"),
            )
        )
    return found


def _clean_accuracy(results: Results, row: str) -> pd.Series:
    return select_by_seed(results.evaluations, row=row, eps=0.0)


def _keep_learned(values: pd.Series, results: Results, *rows: str) -> pd.Series:
    """`values`, without those of seeds in which standard training on D, or training on `rows`, has taught nothing."""
    evaluations = results.evaluations
    return keep_learned(values, evaluations[evaluations["row"].isin(["standard", *rows])], eps=0.0)


EXPERIMENT = Experiment(
    id="A1",
    title="Robust and non-robust data sets",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy on the test split of D, clean and under {attack}. The models were trained on D, adversarially on "
        "D, and by standard training on D_NR and D_R. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
