"""A11: D_R and D_NR as training sets of other architectures than the one that made them.

not-bugs-2019, Section 3.1: "we get the same results for both if we train with different architectures than that of the
original models". The paper names no architecture and prints no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.a1_robust_and_nonrobust_sets import choose_eps
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.grid_search import Search, search_needs, select_best_cells
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct, Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_NR-images", "D_R-images")
SECTION = "not-bugs-2019, Section 3.1"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """If there is a search (Appendix C.2), the table also shows its best training. Claims use those of the study."""

    architectures: Annotated[tuple[Name, ...], MinLen(1), Distinct]
    """The architectures, by their names in `other_architectures`."""
    search: Search | None = None
    """The search for their trainings on D_NR and D_R; none if it is not given."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per architecture, training set and seed. A search adds models with their evaluations."""
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
            if settings.search is None:
                continue
            searched = search_needs(
                pieces, settings.search, DERIVED_SETS, seed, experiment="A11", architecture=architecture
            )
            for need in searched:
                found += [need, replace(need, recipe=pieces.evaluation(need.recipe, eps=radii))]
    return found


def _without_search(results: Results) -> pd.DataFrame:
    rows = results.evaluations
    return rows if results.settings.search is None else rows[rows["cell"].isna()]


def table(results: Results) -> pd.DataFrame:
    """One line per architecture, training set and radius, also for the best training of the search."""
    import pandas as pd

    rows = _without_search(results)
    if results.settings.search is not None:
        on = ["architecture", "row"]
        best = results.evaluations.merge(select_best_cells(results.histories, on), on=[*on, "cell"])
        rows = pd.concat([rows, best.assign(row=best["row"] + f", {results.settings.search.title}: " + best["cell"])])
    columns = ["architecture", "row", "eps"]
    return add_published(summarise_seeds(rows, columns), results, columns)


def figure(results: Results) -> Figure:
    """Bars per architecture and training set, one per radius."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    rows = _without_search(results)
    return grouped_bars(
        rows.assign(group=rows["row"] + "\n" + rows["architecture"]),
        group="group",
        bar="eps",
        bar_label=results.name_radius,
        xlabel="trained on (standard training), and the architecture trained",
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.1 on D_R and D_NR, for each architecture, at A1's compared radius."""
    rows = _without_search(results)
    return [
        Claim(f"With another architecture downstream, {sentence}", SECTION, quantity, values, setting=name)
        for name in results.settings.architectures
        for sentence, quantity, values in _compare(rows[rows["architecture"] == name])
    ]


def _compare(rows: pd.DataFrame) -> list[tuple[str, str, pd.Series]]:
    """The sentences of A1 on one architecture, what is measured, and its values."""
    eps = choose_eps(rows)
    clean, robust = ({row: select_by_seed(rows, row=row, eps=at) for row in ("D", *DERIVED_SETS)} for at in (0.0, eps))
    of_robust = f"robust accuracy at eps {eps:g}"

    def learned(values: pd.Series, *trained_on: str) -> pd.Series:
        return keep_learned(values, rows[rows["row"].isin(["D", *trained_on])], eps=0.0)

    return [
        (
            "standard training on D_R gives more robustness than on D",
            f"{of_robust}: D_R-images minus D",
            learned(robust["D_R-images"] - robust["D"], "D_R-images"),
        ),
        (
            "standard training on D_R gives more robustness than on D_NR",
            f"{of_robust}: D_R-images minus D_NR-images",
            learned(robust["D_R-images"] - robust["D_NR-images"], *DERIVED_SETS),
        ),
        (
            "training on D_R attains good standard accuracy (four fifths of D's)",
            "clean accuracy: D_R-images minus four fifths of D",
            learned(clean["D_R-images"] - 0.8 * clean["D"]),
        ),
        (
            "training on D_NR leads to good standard accuracy (nine tenths of D's)",
            "clean accuracy: D_NR-images minus nine tenths of D",
            learned(clean["D_NR-images"] - 0.9 * clean["D"]),
        ),
        (
            "training on D_NR yields almost no robustness (a tenth of its accuracy on clean images)",
            f"D_NR-images: a tenth of clean accuracy minus {of_robust}",
            learned(0.1 * clean["D_NR-images"] - robust["D_NR-images"], "D_NR-images"),
        ),
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
        "Accuracy on the test split of D, clean and under {attack}, after standard training on D, D_NR and D_R. The "
        "architectures are others than the one that D_NR and D_R were made with. Bars are means, whiskers standard "
        "deviations, dots the seeds."
    ),
)
