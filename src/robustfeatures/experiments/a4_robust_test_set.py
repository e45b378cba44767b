"""A4: the D_R model on the D_R train set, on a D_R test set, and on the test split of D.

not-bugs-2019, Appendix D.3, Table 8. The D_R test set is made from the test split, like the D_R train set from
the train split. The paper leaves open which D_R its Table 8 shows. Its text refers to Section 3.1, whose set is made
from images. But its 48.27 % on the standard test set is the number of Table 7 for D_R from noise (from images: 48.20
%). Both sets are measured. The published numbers are compared with the set from noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.a1_robust_and_nonrobust_sets import choose_eps
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    add_published,
    keep_if_any_learned,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


# The derived sets, and the start of the optimisation of each.
DERIVED_SETS = {"D_R-images": "images", "D_R-noise": "noise"}
TEST_SETS = ("robust train set", "robust test set", "standard test set")
SECTION = "not-bugs-2019, Appendix D.3 and Table 8"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A4 takes the radii and the attacks from the study's `robustness`."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per derived set, test set and seed; A1 shares that on the test split of D."""
    radii = (0.0, *pieces.robustness.eps)
    found = []
    for seed in pieces.study.seeds:
        for name in DERIVED_SETS:
            model = pieces.downstream_model(name, seed)
            train = pieces.derived(name, seed)
            method = train.parameters.method  # type: ignore[union-attr]
            label = f"{pieces.data().label}-{name}-of-test"
            test = pieces.derived_with(label, method, seed, train.inputs, splits=("test",))
            evaluations = (
                pieces.evaluation(model, eps=radii, data=train, split="train"),
                pieces.evaluation(model, eps=radii, data=test),
                pieces.evaluation(model, eps=radii),
            )
            found += [
                Need(name, seed, recipe, {"test_set": test_set})
                for test_set, recipe in zip(TEST_SETS, evaluations, strict=True)
            ]
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per derived set, test set and radius."""
    columns = ["row", "test_set", "eps"]
    return add_published(summarise_seeds(results.evaluations, columns), results, columns)


def figure(results: Results) -> Figure:
    """Robust accuracy at A1's compared radius: a group per derived set, a bar per test set."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    rows = results.evaluations
    eps = choose_eps(rows)
    printed = results.comparable_rows
    return grouped_bars(
        rows[rows["eps"] == eps],
        group="row",
        bar="test_set",
        xlabel="trained on (standard training)",
        ylabel=f"accuracy under {results.name_radius(eps)} (%)",
        published=None if printed is None else printed[printed["eps"] == eps],
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.3 on these rows, at A1's compared radius."""
    rows = results.evaluations
    eps = choose_eps(rows)
    compared = (
        ("The D_R model is less robust on unseen samples of D_R than on those it was trained on", TEST_SETS[:2]),
        ("The D_R model is less robust on D than on unseen samples of D_R", TEST_SETS[1:]),
    )
    return [
        Claim(
            sentence,
            SECTION,
            f"{name}, robust accuracy at eps {eps:g}: {more} minus {less}",
            keep_if_any_learned(
                select_by_seed(rows, row=name, test_set=more, eps=eps)
                - select_by_seed(rows, row=name, test_set=less, eps=eps),
                rows[(rows["row"] == name) & (rows["eps"] == 0)],
            ),
            setting=f"from {start}",
        )
        for name, start in DERIVED_SETS.items()
        for sentence, (more, less) in compared
    ]


EXPERIMENT = Experiment(
    id="A4",
    title="Robust train and test sets",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on"},
    caption=(
        "Accuracy of models of standard training on D_R, under {attack} at 0.25, or at the smallest radius of a study "
        "without 0.25. They are tested on their training set, on samples of D_R made from the test split of D, and on "
        "that split. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
