"""A2: accuracy on D of models trained on D, D_rand and D_det, built with a standard and with a robust source.

not-bugs-2019, Section 3.2, Tables 1 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

DERIVED_SETS = ("D_rand", "D_det", "D_rand-robust", "D_det-robust")
# Clean accuracy on D and on D relabelled by t(y): A7 reads the same evaluations.
LABEL_SHIFTS = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A2 has no settings of its own."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per row and seed; A1 shares that of the model trained on D."""
    found = []
    for seed in pieces.study.seeds:
        standard = pieces.evaluation(pieces.source_model("standard", seed), eps=(0.0, *pieces.robustness.eps))
        found.append(Need("D", seed, standard))
        for name in DERIVED_SETS:
            model = pieces.downstream_model(name, seed)
            found.append(Need(name, seed, pieces.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS)))
    return found


def _clean(results: Results) -> pd.DataFrame:
    rows = results.evaluations
    return rows[(rows["eps"] == 0) & (rows["label_shift"] == 0)]


def table(results: Results) -> pd.DataFrame:
    """One line per training set."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    return add_published(summarise_seeds(_clean(results), ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """One bar per training set."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        _clean(results),
        group="row",
        bar="eps",
        bar_label=lambda eps: "clean",
        xlabel="trained on ('-robust': made with an adversarially trained model)",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.2 and Appendix D.4 on these rows."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    accuracy = {row: select_by_seed(_clean(results), row=row) for row in ("D", *DERIVED_SETS)}
    chance = percent(1 / results.evaluations["classes"].iloc[0])
    source, appendix = "not-bugs-2019, Section 3.2 and Table 1", "not-bugs-2019, Appendix D.4 and Table 9"
    return [
        Claim(
            f"A model trained on {name} generalises to the original test set",
            source,
            f"clean accuracy: {name} minus chance",
            list(accuracy[name] - chance),
        )
        for name in ("D_rand", "D_det")
    ] + [
        Claim(sentence, where, f"clean accuracy: {more} minus {less}", list(accuracy[more] - accuracy[less]))
        for sentence, where, more, less in (
            ("D_rand generalises better than D_det", source, "D_rand", "D_det"),
            ("D_rand made with a robust model generalises worse", appendix, "D_rand", "D_rand-robust"),
            ("D_det made with a robust model generalises worse", appendix, "D_det", "D_det-robust"),
        )
    ]


EXPERIMENT = Experiment(
    id="A2",
    title="Random and deterministic targets",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Clean accuracy on the test split of D of models trained on D and on relabelled adversarial examples, made "
        "with a standard or with a robust model. Each set has the training that its study gives it, as in the paper, "
        "where each had its own hyper-parameters. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
