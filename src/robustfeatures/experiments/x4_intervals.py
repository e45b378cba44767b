"""X4: the accuracies of A1 and A2 with their spread over seeds and the 95 % interval of their mean.

Every table of several seeds has these intervals. Here they show which differences between the main rows of the first
paper are larger than the spread over seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments import a1_robust_and_nonrobust_sets as a1
from robustfeatures.experiments import a2_random_and_deterministic_targets as a2
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """X4 has no settings of its own."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The evaluations of A1, from the starts that it has in the study, and those of A2; each with their seeds."""
    of_a1 = a1.needs(pieces.of_experiment("A1"), pieces.study.experiment_settings("A1", a1.Settings))
    of_a2 = a2.needs(pieces.of_experiment("A2"), a2.Settings())
    # The network trained on D is in both, and A2 may have more of its seeds.
    named = [replace(need, row="standard") if need.row == "D" else need for need in of_a2]
    return list({(need.row, need.seed): need for need in (*of_a1, *named)}.values())


def _plain(results: Results) -> pd.DataFrame:
    return results.evaluations[results.evaluations["label_shift"] == 0]


def table(results: Results) -> pd.DataFrame:
    """One line per training set and radius."""
    return add_published(summarise_seeds(_plain(results), ["row", "eps"]), results, ["row", "eps"])


def figure(results: Results) -> Figure:
    """Each mean as a dot on its interval."""
    from robustfeatures.experiments.shared.interval_plots import plot_intervals

    return plot_intervals(_plain(results), row="row", panel="eps", title=results.name_radius)


EXPERIMENT = Experiment(
    id="X4",
    title="Means and their intervals",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    caption=(
        "Accuracy on the test split of D by training set, clean and under {attack}. Large dots are means over seeds, "
        "lines their 95 % intervals (Student's t), small dots the seeds."
    ),
)
