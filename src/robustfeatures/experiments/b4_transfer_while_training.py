"""B4: attack success and transfer per epoch of a normal and of an overfit network on clean data.

two-pathways-2021, Section 4.2, Figure 4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.experiments.b2_transferring_examples import make_second_model
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.training.settings import Adversary, Probe, ProbeAttack

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 4.2 and Figure 4"
ATTACK = "attack success"
NORMAL, OVERFIT = "transfer to the second normal", "transfer to the second overfit"
# The names of the attack's probe on the other networks, which classify the same examples.
SHOWN = {"train": "train accuracy", "validation": "validation accuracy", ATTACK: "attack success on the network itself"}
TRANSFER = {"normal": NORMAL, "overfit": OVERFIT}
# Table 3 of Appendix C.
PAPER = Adversary(norm="l2", eps=0.5, step_size=0.1, steps=100)
# Thresholds for "high" and "fail", in percent.
HIGH, FAILING = 50.0, 10.0
GAP = "train minus validation"
# A network overfits if its gap is larger than that of the normal network by so many points.
OVERFITS = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The trainings of the two kinds of network, and the attack, always on the same images."""

    normal: str
    """The training of the normal networks."""
    overfit: str
    """The training of the overfit networks."""
    overfit_data: Name = "D"
    """The data of the overfit networks: D, or the name of a set of `other_data`."""
    attack: Adversary = PAPER
    """The targeted attack, towards t(y) = (y + 1) mod C."""
    images: PositiveInt = 1000
    """The number of attacked images of the test split."""
    every: PositiveInt = 1
    """The number of epochs between two attacks."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The first network of each kind, probed with the second of each; D needs a validation split."""
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
        kinds = {"normal": (settings.normal, "D"), "overfit": (settings.overfit, settings.overfit_data)}
        seconds = {row: make_second_model(pieces, training, seed, data=name) for row, (training, name) in kinds.items()}
        for row, (training, name) in kinds.items():
            data = pieces.data(name)
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
    """One line per network and probe, after the last epoch, and one with the gap that says whether it overfits."""
    import pandas as pd

    last = _select_last_epoch(results)
    validation = last[last["probe"] == "validation"].set_index(["row", "seed"])
    train = last[last["probe"] == "train"].set_index(["row", "seed"])
    gaps = validation.assign(probe=GAP, accuracy=train["accuracy"] - validation["accuracy"]).reset_index()
    rows = pd.concat([last, gaps], ignore_index=True)
    return add_published(summarise_seeds(rows, ["row", "probe", "images", "eps"]), results, ["row", "probe", "eps"])


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per network."""
    from robustfeatures.experiments.shared.plots import curves

    return curves(
        _name_transfers(results),
        panel="row",
        panel_label=lambda row: f"{row} training",
        line="probe",
        line_label=lambda probe: SHOWN.get(probe, f"{probe} network"),
        x="epoch",
        xlabel="epoch",
        ylabel="share of images (%)",
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 4.2 on the networks after the last epoch.

    Those on the overfit network have no values if it does not overfit.
    """
    last = _select_last_epoch(results)

    def at(row: str, probe: str) -> pd.Series:
        return select_by_seed(last, row=row, probe=probe)

    normal, overfit = ((at(row, "train") - at(row, "validation")).mean() for row in ("normal", "overfit"))
    overfits = overfit - normal >= OVERFITS
    left_out = f"; not tested: {GAP} is {overfit:.1f} for the overfit network, {normal:.1f} for the normal one"
    succeed = f"Targeted attacks succeed on normal and overfit networks (taken as more than {HIGH:g} %)"
    found = [
        (succeed, f"attack success minus {HIGH:g}", at("overfit", ATTACK) - HIGH, "overfit"),
        (
            "Adversarial examples of the normal network transfer to the second normal one better than those of the "
            "overfit network",
            "transfer to the second normal: normal minus overfit",
            at("normal", NORMAL) - at("overfit", NORMAL),
            "",
        ),
        *(
            (
                "Adversarial examples of the overfit network fail to transfer to second networks (taken as less than "
                f"{FAILING:g} %)",
                f"{FAILING:g} minus {probe}",
                FAILING - at("overfit", probe),
                probe.removeprefix("transfer "),
            )
            for probe in TRANSFER.values()
        ),
    ]
    return [
        Claim(succeed, SECTION, f"attack success minus {HIGH:g}", at("normal", ATTACK) - HIGH, setting="normal"),
        *(
            Claim(sentence, SECTION, quantity, values, setting=setting)
            if overfits
            else Claim(sentence, SECTION, quantity + left_out, [], setting=setting)
            for sentence, quantity, values, setting in found
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
        "One network is trained on D normally, another so that it overfits. Per epoch: accuracy on the train and "
        "validation splits, and success of targeted PGD towards t(y) = (y + 1) mod C on test images. Transfer is the "
        "share of the same adversarial examples that a second normal or overfit network classifies as their target. "
        "Lines are means over seeds, bands standard deviations. The table gives the number of images per value; each "
        "model's reference and log give the cost in seconds. The overfit network overfits if its train minus "
        "validation "
        f"accuracy is at least {OVERFITS:g} points larger than that of the normal one. Otherwise no claim about it is "
        "tested."
    ),
)
