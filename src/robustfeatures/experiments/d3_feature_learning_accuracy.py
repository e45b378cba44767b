"""D3: how well standard and adversarial training learn non-robust and robust features, epoch by epoch.

adversarial-training-2025, Section 6.2 and Appendix A.1, Definition 4.1, Figures 4 and 5 and Table 1. The feature
representative distributions are data sets with one kind of feature: a reference network represents each image like its
target image. A standard reference gives the non-robust set, an adversarially trained one gives the robust set.
Feature-learning accuracy is the accuracy on these sets, with the labels of the targets.

Our copy of the paper lacks its formulas. So two choices are ours: the represented split (the test split, which no
network was trained on) and the start of the inversion (other images, as in not-bugs-2019, which the paper follows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.derived.settings import Inversion
from robustfeatures.engine.settings import PositiveFloat, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


# Learners and victims share no seed with the reference networks.
LEARNER_SEED = 2000

NON_ROBUST, ROBUST = "non-robust learning", "robust learning"
TEST_IMAGES = "test images"
# What Table 1 calls the accuracy under attack.
ATTACKED = "robust"
PROBES = (
    Probe(name="clean", input="data", split="test"),
    Probe(name=NON_ROBUST, input="non-robust", split="test"),
    Probe(name=ROBUST, input="robust", split="test"),
)
STANDARD, ADVERSARIAL = "standard training", "adversarial training"
TRAININGS = {STANDARD: "standard", ADVERSARIAL: "adversarial"}
SECTION = "adversarial-training-2025, Appendix A.1 and Table 1"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """How references are inverted, and the table's radius. References and learners have the same two trainings."""

    inversion: Inversion
    """How the references are inverted."""
    eps: PositiveFloat
    """The radius of the table."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Per training and seed one probed network, and its evaluations on D and on both sets of representatives."""
    label = pieces.data().label
    found = []
    for seed in pieces.study.seeds:
        inputs = {"data": pieces.data()}
        for kind, training in zip(("non-robust", "robust"), TRAININGS.values(), strict=True):
            reference = {"data": pieces.data(), "source": pieces.source_model(training, seed)}
            inputs[kind] = pieces.derived_with(
                f"{label}-{kind}-representatives", settings.inversion, seed, reference, splits=("test",)
            )
        for row, training in TRAININGS.items():
            learner = pieces.model(
                f"{label}-learner-{training}", training, seed, inputs, probes=PROBES, seed_offset=LEARNER_SEED
            )
            found += [
                Need(row, seed, learner),
                Need(
                    row,
                    seed,
                    pieces.evaluation(learner, eps=(0.0, settings.eps), where="experiments.D3"),
                    {"images": TEST_IMAGES},
                ),
                *(
                    Need(row, seed, pieces.clean_evaluation(learner, data=inputs[kind]), {"images": measure})
                    for kind, measure in (("non-robust", NON_ROBUST), ("robust", ROBUST))
                ),
            ]
    return found


def select_measures(results: Results) -> pd.DataFrame:
    """The rows of Table 1, one per training, seed and measure: columns row, seed, measure, accuracy."""
    rows = results.evaluations
    of_radius = rows["eps"].eq(0).map({True: "clean", False: ATTACKED})
    measured = rows.assign(measure=rows["images"].where(rows["images"] != TEST_IMAGES, of_radius))
    return measured[["row", "seed", "measure", "accuracy"]]


def table(results: Results) -> pd.DataFrame:
    """One line per training and measure, as Table 1: test accuracy clean and robust, and both kinds of learning."""
    rows = select_measures(results).sort_values("row", kind="stable", ascending=False)
    return add_published(summarise_seeds(rows, ["row", "measure"]), results, ["row", "measure"])


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per training, as in Figures 4 and 5; at the end the values of Table 1."""
    import pandas as pd

    from robustfeatures.experiments.shared.plots import curves

    printed, rows = results.comparable_rows, results.histories
    attacked = select_measures(results).rename(columns={"measure": "probe"})
    attacked = attacked[attacked["probe"] == ATTACKED].assign(epoch=rows["epoch"].max())
    under_attack = f"under attack, {results.name_radius(results.settings.eps)}"
    return curves(
        pd.concat([rows, attacked]),
        panel="row",
        line="probe",
        line_label=lambda name: under_attack if name == ATTACKED else name,
        x="epoch",
        xlabel="epoch",
        published=None if printed is None else printed.rename(columns={"measure": "probe"}),
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix A.1 on Table 1.

    The reference networks are trained as the networks of the table. If one of these has learned nothing, no claim is
    tested.
    """
    rows = select_measures(results)
    tested = results.clean[results.clean["images"] == TEST_IMAGES]

    def at_end(row: str, measure: str) -> pd.Series:
        return select_by_seed(rows, row=row, measure=measure)

    return [
        Claim(
            "In standard training, network learners predominantly learn non-robust features rather than robust ones",
            SECTION,
            "standard training, last epoch: non-robust minus robust learning",
            keep_learned(at_end(STANDARD, NON_ROBUST) - at_end(STANDARD, ROBUST), tested),
        ),
        Claim(
            "Adversarial training inhibits non-robust feature learning",
            SECTION,
            "non-robust learning, last epoch: standard minus adversarial training",
            keep_learned(at_end(STANDARD, NON_ROBUST) - at_end(ADVERSARIAL, NON_ROBUST), tested),
        ),
        Claim(
            "Adversarial training strengthens robust feature learning",
            SECTION,
            "robust learning, last epoch: adversarial minus standard training",
            keep_learned(at_end(ADVERSARIAL, ROBUST) - at_end(STANDARD, ROBUST), tested),
        ),
    ]


EXPERIMENT = Experiment(
    id="D3",
    title="Feature-learning accuracy",
    paper="adversarial-training-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "training"},
    caption=(
        "Accuracy per epoch of standard and of adversarial training on D. Clean is the accuracy on the test split. "
        "Non-robust learning is that on images which a separate standard reference network represents nearly like "
        "those of the test split. For robust learning the reference network is adversarially trained. Lines are means "
        "over seeds, bands standard deviations. The marks at the last epoch are the accuracy of trained networks under "
        "{attack}. The text of the paper lacks its radius, so published robust accuracies may be at another one."
    ),
)
