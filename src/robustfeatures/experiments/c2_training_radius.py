"""C2: accuracy on clean images against the radius of training. at-odds-2019, Figure 7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import (
    NORM_NAMES,
    PAPER,
    AdversarialTrainings,
    RadiiPerNorm,
    make_network,
    round_eps,
    training_name,
)
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, summarise_seeds
from robustfeatures.experiments.shared.units import CORRELATIONS
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Section 2 and Figure 7"
# The paper's Table 4 has 0.8 on MNIST, where accuracy rises at the smallest of three radii, and 1 on CIFAR-10. With two
# radii, one rise leaves at most 0.5.
STEADY = 0.5


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Training radii per norm; radius 0, standard training, is always included."""

    eps: RadiiPerNorm
    """The training radii of each norm."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per norm, radius and seed; those of radius 0 are the same in both norms."""
    return [
        Need(
            f"{norm} {training_name(norm, eps)}",
            seed,
            pieces.clean_evaluation(make_network(pieces, settings, seed, norm, eps)),
            {"norm": NORM_NAMES[norm], "eps_train": round_eps(eps)},
        )
        for seed in pieces.study.seeds
        for norm, radii in settings.eps.items()
        for eps in (0.0, *sorted(radii))
    ]


def table(results: Results) -> pd.DataFrame:
    """One line per norm and radius."""
    by = ["norm", "eps_train"]
    return add_published(summarise_seeds(results.evaluations, by), results, by)


def figure(results: Results) -> Figure:
    """A panel per norm, with its own scale of radii, as in Figure 7."""
    from robustfeatures.experiments.shared.sweeps import plot_panels

    return plot_panels(results.evaluations, x="eps_train", xlabel="eps of training")


def claims(results: Results) -> list[Claim]:
    """The claims of Section 2 and Figure 7: a decline, and a steady one."""
    from robustfeatures.experiments.shared.sweeps import rank_correlation

    rows = results.evaluations
    found = []
    for norm in rows["norm"].unique():
        wide = rows[rows["norm"] == norm].pivot_table(index="seed", columns="eps_train", values="accuracy")
        largest = wide.columns.max()
        compared = rows[rows["eps_train"].isin([0.0, largest])]
        correlations = wide.apply(lambda each: rank_correlation(list(each.index), list(each)), axis=1)
        found += [
            Claim(
                "Accuracy on clean images falls with the strength of the adversary of training",
                SOURCE,
                f"accuracy: eps_train 0 minus {largest:g}",
                keep_learned(wide[0.0] - wide[largest], compared, norm=norm),
                setting=norm,
            ),
            Claim(
                "The decline of accuracy on clean images is steady (rank correlation beyond one half)",
                SOURCE,
                "minus Spearman's rank correlation of eps_train and accuracy",
                keep_learned(-correlations, rows, norm=norm),
                STEADY,
                setting=norm,
                of_images=False,
                bounds=CORRELATIONS,
            ),
        ]
    return found


EXPERIMENT = Experiment(
    id="C2",
    title="Accuracy against the radius of training",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"eps_train": "training eps"},
    caption=(
        "Accuracy on clean test images against the radius of adversarial training; 0 is standard training. Lines are "
        "means over seeds, bands standard deviations. The axes of accuracy span at least 20 points."
    ),
)
