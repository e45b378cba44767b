"""A11: D_R and D_NR as training sets of other architectures than the one that made them.

not-bugs-2019, Section 3.1: "we get the same results for both if we train with different architectures than that of the
original models". The paper names no architecture and prints no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

DERIVED_SETS = ("D_NR-images", "D_R-images")
SECTION = "not-bugs-2019, Section 3.1"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The downstream architectures, by their names in the study."""

    architectures: Annotated[tuple[Name, ...], MinLen(1)]


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per architecture, training set and seed."""
    radii = (0.0, *pieces.robustness.eps)
    found = []
    for seed in pieces.study.seeds:
        for architecture in settings.architectures:
            models = {"D": pieces.source_model("standard", seed, architecture=architecture)}
            models |= {name: pieces.downstream_model(name, seed, architecture=architecture) for name in DERIVED_SETS}
            found += [
                Need(row, seed, pieces.evaluation(model, eps=radii), {"architecture": architecture})
                for row, model in models.items()
            ]
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per architecture, training set and radius."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    columns = ["architecture", "row", "eps"]
    return add_published(summarise_seeds(results.evaluations, columns), results, columns)


def figure(results: Results) -> Figure:
    """Bars per architecture and training set, one per radius."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    rows = results.evaluations
    return grouped_bars(
        rows.assign(group=rows["row"] + "\n" + rows["architecture"]),
        group="group",
        bar="eps",
        bar_label=lambda eps: "clean" if eps == 0 else f"L2 {eps:g}",
        xlabel="trained on (standard training), and the architecture trained",
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.1 on D_R and D_NR, for each architecture, at the middle radius."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    rows = results.evaluations
    radii = sorted(eps for eps in rows["eps"].unique() if eps > 0)
    middle = radii[len(radii) // 2]
    compared = (
        ("standard training on D_R gives more robustness than on D", middle, "D_R-images", "D", 1.0),
        ("training on D_NR gives no more robustness than training on D", middle, "D", "D_NR-images", 1.0),
        ("training on D_NR leads to good standard accuracy (nine tenths of that on D)", 0.0, "D_NR-images", "D", 0.9),
    )
    return [
        Claim(
            f"With {architecture} downstream, {sentence}",
            SECTION,
            f"{'clean accuracy' if eps == 0 else f'robust accuracy at eps {eps:g}'}: {more} minus "
            f"{'nine tenths of ' if share < 1 else ''}{less}",
            list(
                select_by_seed(rows, architecture=architecture, row=more, eps=eps)
                - share * select_by_seed(rows, architecture=architecture, row=less, eps=eps)
            ),
        )
        for architecture in results.settings.architectures
        for sentence, eps, more, less, share in compared
    ]


EXPERIMENT = Experiment(
    id="A11",
    title="Other architectures downstream",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy on the test split of D, clean and under L2 PGD, of architectures other than the one that D_NR and "
        "D_R were made with, after standard training on D, D_NR and D_R. Bars are means, whiskers standard deviations, "
        "dots the seeds."
    ),
)
