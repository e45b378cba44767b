"""A2: accuracy on D of models trained on D, D_rand and D_det, built with a standard and with a robust source.

not-bugs-2019, Section 3.2, Tables 1 and 9. "Chance" is the share of the most frequent class of the tested images:
10 % on CIFAR-10, 58 % on Restricted ImageNet. A network that gives every image this class has this accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.grid_search import TEST, Search, search_needs, select_best_cells
from robustfeatures.experiments.shared.summaries import (
    LEAST_LEARNED,
    above_learned,
    add_published,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_rand", "D_det", "D_rand-robust", "D_det-robust")
# Clean accuracy on D and on D relabelled by t(y): A7 reads the same evaluations.
LABEL_SHIFTS = (0, 1)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """If there is a search, the table also shows its best training. Claims use the trainings that the study names."""

    search: Search | None = None
    """The search for the training on each set, as in Appendix C.2; none if it is not given."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per row and seed; A1 shares that of the model trained on D. A search adds models."""
    found = []
    for seed in pieces.study.seeds:
        standard = pieces.evaluation(pieces.source_model("standard", seed), eps=(0.0, *pieces.robustness.eps))
        found.append(Need("D", seed, standard))
        found += [evaluate_on(pieces, name, seed) for name in DERIVED_SETS]
        if settings.search is not None:
            found += search_needs(pieces, settings.search, DERIVED_SETS, seed, experiment="A2")
    return found


def evaluate_on(pieces: Pieces, name: str, seed: int) -> Need:
    """The accuracy of the network trained on a derived set, on D and with the labels of D moved by t."""
    model = pieces.downstream_model(name, seed)
    return Need(name, seed, pieces.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS))


def table(results: Results) -> pd.DataFrame:
    """One line per training set, and one for the best training of the search on it."""
    import pandas as pd

    rows = results.clean
    if results.settings.search is not None:
        tested = results.histories[results.histories["probe"] == TEST]
        best = tested.merge(select_best_cells(results.histories, ["row"]), on=["row", "cell"])
        best = best.assign(row=best["row"] + f", {results.settings.search.title}: " + best["cell"], eps=0.0)
        rows = pd.concat([rows, best], ignore_index=True)
    return add_published(summarise_seeds(rows, ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """A group per training set, with a bar per source, as in the paper."""
    from robustfeatures.experiments.shared.plots import grouped_bars
    from robustfeatures.experiments.shared.sources import split_sources

    printed = results.comparable_rows
    return grouped_bars(
        split_sources(results.clean),
        group="set",
        bar="source",
        xlabel="trained on",
        published=None if printed is None else split_sources(printed),
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3.2 and Appendix D.4 on these rows."""
    accuracy = {row: select_by_seed(results.clean, row=row) for row in ("D", *DERIVED_SETS)}
    chance = {name: select_by_seed(results.clean, value="chance", row=name) for name in DERIVED_SETS}
    source, appendix = "not-bugs-2019, Section 3.2 and Table 1", "not-bugs-2019, Appendix D.4 and Table 9"
    return [
        Claim(
            "Standard training on relabelled adversarial examples generalises to the original test set (taken as "
            f"{LEAST_LEARNED})",
            source,
            f"clean accuracy: {name} minus {LEAST_LEARNED}",
            above_learned(accuracy[name], chance[name]),
            setting=name,
        )
        for name in ("D_rand", "D_det")
    ] + [
        Claim(
            "D_rand teaches more of the original test set than D_det",
            source,
            "clean accuracy: D_rand minus D_det",
            accuracy["D_rand"] - accuracy["D_det"],
        ),
        *(
            Claim(
                "A set made with a robust model leads to a worse accuracy on the original test set",
                appendix,
                f"clean accuracy: {name} minus {name}-robust",
                accuracy[name] - accuracy[f"{name}-robust"],
                setting=name,
            )
            for name in ("D_rand", "D_det")
        ),
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
    names={"row": "trained on"},
    caption=(
        "Clean accuracy on the test split of D of models trained on D, D_rand and D_det. D_rand and D_det are "
        "relabelled adversarial examples, made with a standard or with a robust (adversarially trained) source. Each "
        "set has the training that its study gives it, as in the paper, where each had its own hyper-parameters. "
        "Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
