"""B4: attack success and transfer per epoch of a normal and of an overfit network on clean data.

two-pathways-2021, Section 4.2, Figure 4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.experiments.b2_transferring_examples import make_second_model
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Adversary, Probe, ProbeAttack

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SECTION = "two-pathways-2021, Section 4.2 and Figure 4"
ATTACK = "attack success"
NORMAL, OVERFIT = "transfer to the second normal", "transfer to the second overfit"
# The names of the attack's probe on the other networks, which classify the same examples.
TRANSFER = {"normal": NORMAL, "overfit": OVERFIT}
# Table 3 of Appendix C.
PAPER = Adversary(norm="l2", eps=0.5, step_size=0.1, steps=100)
# Thresholds for "high" and "fail", in percent.
HIGH, FAILING = 50.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The named trainings of the two kinds of network, and the targeted attack, towards t(y) = (y + 1) mod C.

    Every `every` epochs it attacks the same `images` of the test split.
    """

    normal: str
    overfit: str
    attack: Adversary = PAPER
    images: PositiveInt = 1000
    every: PositiveInt = 1


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The first network of each kind, probed with the second of each; D needs a validation split."""
    data = pieces.data()
    probes = (
        Probe(name="train", input="data", split="train", images=10_000),
        Probe(name="validation", input="data", split="validation"),
        Probe(
            name=ATTACK,
            input="data",
            split="test",
            label_shift=1,
            attack=ProbeAttack(**asdict(settings.attack), targeted=True),
            transfer_to=tuple(TRANSFER),
            images=settings.images,
            every=settings.every,
        ),
    )
    found = []
    for seed in pieces.study.seeds:
        seconds = {
            "normal": make_second_model(pieces, settings.normal, seed),
            "overfit": make_second_model(pieces, settings.overfit, seed),
        }
        for row, training in (("normal", settings.normal), ("overfit", settings.overfit)):
            label = f"{data.label}-{training}-probed"
            model = pieces.model(label, training, seed, {"data": data, **seconds}, probes=probes)
            found.append(Need(row, seed, model))
    return found


def _name_transfers(results: Results) -> pd.DataFrame:
    rows = results.histories
    return rows.assign(probe=rows["network"].map(TRANSFER).fillna(rows["probe"]))


def _select_last_epoch(results: Results) -> pd.DataFrame:
    rows = _name_transfers(results)
    return rows[rows["epoch"] == rows.groupby("row")["epoch"].transform("max")].assign(eps=0.0)


def table(results: Results) -> pd.DataFrame:
    """One line per network and probe, after the last epoch."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    return add_published(
        summarise_seeds(_select_last_epoch(results), ["row", "probe", "images", "eps"]),
        results,
        ["row", "probe", "eps"],
    )


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per network."""
    from robustfeatures.experiments.shared.plots import curves

    return curves(_name_transfers(results), panel="row", line="probe", x="epoch", xlabel="epoch")


def claims(results: Results) -> list[Claim]:
    """The claims of Section 4.2 on the networks after the last epoch."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    last = _select_last_epoch(results)

    def at(row: str, probe: str) -> pd.Series:
        return select_by_seed(last, row=row, probe=probe)

    return [
        *(
            Claim(
                f"Targeted attacks succeed on the {row} network (taken as more than {HIGH:g} %)",
                SECTION,
                f"attack success minus {HIGH:g}",
                list(at(row, ATTACK) - HIGH),
            )
            for row in ("normal", "overfit")
        ),
        Claim(
            "Adversarial examples of the normal network transfer to the second normal one better than those of the "
            "overfit network",
            SECTION,
            "transfer to the second normal: normal minus overfit",
            list(at("normal", NORMAL) - at("overfit", NORMAL)),
        ),
        *(
            Claim(
                f"Those of the overfit network fail to {probe} (taken as less than {FAILING:g} %)",
                SECTION,
                f"{FAILING:g} minus {probe}",
                list(FAILING - at("overfit", probe)),
            )
            for probe in (NORMAL, OVERFIT)
        ),
        Claim(
            "The normal network has the better validation accuracy",
            SECTION,
            "validation: normal minus overfit",
            list(at("normal", "validation") - at("overfit", "validation")),
        ),
    ]


EXPERIMENT = Experiment(
    id="B4",
    title="Attack success and transfer while training",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Per epoch of training on D, normally and so that it overfits: accuracy on the train and validation splits, "
        "success of targeted PGD towards t(y) = (y + 1) mod C on test images, and the share of the same adversarial "
        "examples that a second normal and a second overfit network classify as their target. Lines are means over "
        "seeds, bands standard deviations. The table gives the number of images per value; each model's reference and "
        "log give the cost in seconds."
    ),
)
