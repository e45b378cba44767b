"""A1: models trained on D, adversarially on D, and on D_R and D_NR from images and from noise.

not-bugs-2019, Section 3.1, Figure 2 and Table 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SOURCE_MODELS = ("standard", "adversarial")
DERIVED_SETS = ("D_NR-images", "D_NR-noise", "D_R-images", "D_R-noise")
SECTION = "not-bugs-2019, Section 3.1 and Table 7"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A1 takes the radii and the attack from the study's `robustness`."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per row and seed."""
    radii = (0.0, *pieces.robustness.eps)
    found = []
    for seed in pieces.study.seeds:
        models = {name: pieces.source_model(name, seed) for name in SOURCE_MODELS}
        models |= {name: pieces.downstream_model(name, seed) for name in DERIVED_SETS}
        found += [Need(row, seed, pieces.evaluation(model, eps=radii)) for row, model in models.items()]
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per row and radius."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    return add_published(summarise_seeds(results.evaluations, ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """Bars per training set, one per radius, as in Figure 2b."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        results.evaluations,
        group="row",
        bar="eps",
        bar_label=lambda eps: "clean" if eps == 0 else f"L2 {eps:g}",
        xlabel="trained on (standard training, but for 'adversarial')",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.1 on these rows, at the middle radius."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    radii = sorted(eps for eps in results.evaluations["eps"].unique() if eps > 0)
    middle = radii[len(radii) // 2]

    def clean(row: str) -> pd.Series:
        return select_by_seed(results.evaluations, row=row, eps=0.0)

    def robust(row: str) -> pd.Series:
        return select_by_seed(results.evaluations, row=row, eps=middle)

    at = f"robust accuracy at eps {middle:g}"
    compared = [
        ("Standard training on D_R (from images) gives more robustness than on D", "D_R-images", "standard"),
        ("Standard training on D_R (from noise) gives more robustness than on D", "D_R-noise", "standard"),
        ("D_R (from images) gives more robustness than D_NR (from images)", "D_R-images", "D_NR-images"),
        ("Adversarial training on D is more robust than standard training on D_R", "adversarial", "D_R-images"),
        ("Training on D_NR gives no more robustness than training on D", "standard", "D_NR-images"),
    ]
    return [
        *(
            Claim(sentence, SECTION, f"{at}: {more} minus {less}", list(robust(more) - robust(less)))
            for sentence, more, less in compared
        ),
        Claim(
            "Training on D_NR (from images) leads to good standard accuracy (87.68 of 95.25: nine tenths)",
            SECTION,
            "clean accuracy: D_NR-images minus nine tenths of standard",
            list(clean("D_NR-images") - 0.9 * clean("standard")),
        ),
        Claim(
            "D_NR from noise leads to a worse standard accuracy than D_NR from images",
            "not-bugs-2019, Appendix D.1",
            "clean accuracy: D_NR-images minus D_NR-noise",
            list(clean("D_NR-images") - clean("D_NR-noise")),
        ),
    ]


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
        "Accuracy on the test split of D, clean and under L2 PGD, of models trained on D, adversarially on D, and by "
        "standard training on D_NR and D_R. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
