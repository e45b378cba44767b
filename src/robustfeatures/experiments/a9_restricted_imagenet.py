"""A9: the robust data set on Restricted ImageNet.

not-bugs-2019, Appendix D.8, Figure 12: the three rows of A1 that it shows, on another data set. Its samples, Figure 11,
are A10's. The paper prints no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments import a1_robust_and_nonrobust_sets as a1
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import select_by_seed
from robustfeatures.pipeline.plan.pieces import Pieces

DERIVED_SET = "D_R-images"
# The radius in the legend of Figure 12. Table 4 has 3, for training and evaluation on Restricted ImageNet.
FIGURE_EPS = 0.5
SECTION = "not-bugs-2019, Appendix D.8 and Figure 12"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A9 takes the radii and the attacks from the study's `robustness`."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The evaluations of A1 that Figure 12 shows."""
    radii = (0.0, *pieces.robustness.eps)
    found = []
    for seed in pieces.study.seeds:
        networks = {name: pieces.source_model(name, seed) for name in a1.SOURCE_MODELS}
        networks[DERIVED_SET] = pieces.downstream_model(DERIVED_SET, seed)
        found += [Need(row, seed, pieces.evaluation(network, eps=radii)) for row, network in networks.items()]
    return found


def claims(results: Results) -> list[Claim]:
    """The results of Figure 12, at its radius where the study has it, and at the largest, that of training."""
    rows = results.evaluations
    radii = [eps for eps in sorted(rows["eps"].unique()) if eps in (FIGURE_EPS, rows["eps"].max())]
    compared = (
        ("Standard training on D_R gives more robustness than on D", DERIVED_SET, "standard"),
        ("Adversarial training on D is more robust than standard training on D_R", "adversarial", DERIVED_SET),
    )
    return [
        Claim(
            f"{sentence} (Restricted ImageNet)",
            SECTION,
            f"robust accuracy at eps {eps:g}: {more} minus {less}",
            select_by_seed(rows, row=more, eps=eps) - select_by_seed(rows, row=less, eps=eps),
            setting=f"eps {eps:g}",
        )
        for sentence, more, less in compared
        for eps in radii
    ]


EXPERIMENT = Experiment(
    id="A9",
    title="The robust data set on Restricted ImageNet",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=a1.table,
    figure=a1.figure,
    claims=claims,
    caption=(
        "Accuracy on the test split, clean and under {attack}, of models trained on D, adversarially on D, and by "
        "standard training on D_R. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
