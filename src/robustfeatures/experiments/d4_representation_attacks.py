"""D4: targeted attacks through a standard and an adversarially trained network's representation, NRF-PGD and RF-PGD.

adversarial-training-2025, Appendix A.2 and Table 2. Extractors and victims are trained with different seeds. Our
copy of the text has lost the table's standard deviations, the cells of the adversarially trained network and the number
of seeds. The paper does not give the number and size of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.settings import NormName, check_in_norm
from robustfeatures.data.settings import ClassName
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.d3_feature_learning_accuracy import LEARNER_SEED
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, summarise_seeds
from robustfeatures.experiments.shared.units import SHARES, percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.checks import check_reach
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


NRF, RF = "NRF-PGD", "RF-PGD"
STANDARD, ADVERSARIAL = "standard", "adversarial"
ALL = "all pairs"
# Less net success, in percent, counts as low. The largest that Table 2 calls considerably lower is 15.16.
LOW = 20.0
SECTION = "adversarial-training-2025, Appendix A.2 and Table 2"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The attack, and the pairs of classes of the table."""

    norm: NormName = "linf"
    """The norm of the attack."""
    eps: Annotated[PositiveFloat, AfterValidator(check_in_norm)]
    """The radius of the attack."""
    relative_step_size: PositiveFloat = 0.25
    """The length of a step as a share of the radius."""
    steps: PositiveInt = 20
    """The number of steps."""
    images_per_class: PositiveInt = 1000
    """The largest number of test images of a class that are attacked towards each other class."""
    pairs: Annotated[tuple[tuple[ClassName, ClassName], ...], MinLen(1), Distinct]
    """The pairs of classes of the table: the class of the image, and the other class."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per attack and seed, each on both victims, and the clean accuracy of the victims.

    Raises:
        UserError: the steps are too few or too short for the radius.
    """
    check_reach(settings.steps, settings.relative_step_size, "experiments.D4.steps")
    label = pieces.data().label
    found: list[Need] = []
    for seed in pieces.study.seeds:
        roles = {name: f"victim-{name}" for name in (STANDARD, ADVERSARIAL)}
        victims = {
            role: pieces.model(f"{label}-victim-{name}", name, seed, {"data": pieces.data()}, seed_offset=LEARNER_SEED)
            for name, role in roles.items()
        }
        for attack, training in ((NRF, STANDARD), (RF, ADVERSARIAL)):
            extractor = pieces.source_model(training, seed)
            measurement = pieces.measurement(
                f"{label}-{attack}",
                "measurements.representation_attacks",
                {
                    "victims": roles,
                    "split": "test",
                    "images_per_class": settings.images_per_class,
                    "norm": settings.norm,
                    "eps": settings.eps,
                    "step_size": settings.relative_step_size * settings.eps,
                    "steps": settings.steps,
                    "precision": pieces.study.precision,
                    "seed": seed,
                },
                {"data": pieces.data(), "extractor": extractor, **victims},
                seed=seed,
            )
            found.append(Need(attack, seed, measurement))
        found += [Need(name, seed, pieces.clean_evaluation(victims[role])) for name, role in roles.items()]
    return found


def success_rates(results: Results) -> pd.DataFrame:
    """One row per attack, seed, victim and ordered pair of classes: `success` and `unattacked` in percent."""
    rows = results.measurements
    return rows.assign(
        pair=rows["source"] + " -> " + rows["target"],
        success=percent(rows["reached"] / rows["total"]),
        unattacked=percent(rows["before"] / rows["total"]),
    )


def _name_pairs(results: Results, rows: pd.DataFrame) -> list[str]:
    named = [f"{source} -> {target}" for source, target in results.settings.pairs]
    for pair in named:
        if pair not in set(rows["pair"]):
            raise UserError(f"experiments.D4.pairs: the data set has no two classes {pair!r}")
    return named


def table(results: Results) -> pd.DataFrame:
    """One line per victim, attack and pair, then the mean over all pairs; `unattacked` is the success without attack.

    Raises:
        UserError: the data set has no such pair of classes.
    """
    import pandas as pd

    rows = success_rates(results)
    shown = pd.concat([*(rows[rows["pair"] == pair] for pair in _name_pairs(results, rows)), rows.assign(pair=ALL)])
    shown = shown.sort_values("row", kind="stable").sort_values("victim", kind="stable", ascending=False)
    by, values = ["victim", "row", "pair"], ["success", "unattacked"]
    # One number per seed, so the deviation over all pairs is also one over seeds.
    per_seed = shown.groupby([*by, "seed"], sort=False)[values].mean().reset_index()
    return add_published(summarise_seeds(per_seed, by, values=values), results, by, values=["success"])


def figure(results: Results) -> Figure:
    """Matrices of success, source by target: a panel per victim and attack; the scale ends at the largest, in tens."""
    import math

    import pandas as pd

    from robustfeatures.experiments.shared.plots import heat_map

    rows = success_rates(results).sort_values("victim", kind="stable", ascending=False)
    rows = rows.assign(panel=rows["row"] + ", victim trained: " + rows["victim"])
    largest = rows.groupby(["panel", "pair"])["success"].mean().max()
    # The empty diagonal comes first, so rows and columns have the order of the classes.
    diagonal = rows.drop_duplicates("source").assign(target=lambda each: each["source"], success=float("nan"))
    return heat_map(
        pd.concat([diagonal, rows]),
        panel="panel",
        row="source",
        column="target",
        value="success",
        label="success (%)",
        xlabel="target class",
        ylabel="source class",
        limits=(0.0, max(10.0, 10.0 * math.ceil(largest / 10))),
        cell="{:.0f}".format,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix A.2 on Table 2, over its pairs of classes.

    The text has lost what the table has for the adversarially trained network. "Low" and "considerably lower" are read
    net of the success without attack, because an image that passes for its target unattacked is no success. If NRF-PGD
    fails on the standard network, what adversarial training does against it is not tested. Nor is it if the
    adversarially trained network has learned nothing. The network that RF-PGD takes features from is trained alike.

    Raises:
        UserError: the data set has no such pair of classes.
    """
    rows = success_rates(results)
    rows = rows[rows["pair"].isin(_name_pairs(results, rows))].assign(net=rows["success"] - rows["unattacked"])
    by_seed = rows.groupby(["victim", "row", "seed"])
    success, net = by_seed["success"].mean(), by_seed["net"].mean()
    images = int(by_seed["total"].sum().min())
    nrf, rf = net[STANDARD, NRF], net[STANDARD, RF]
    failed = "" if nrf.mean() > LOW else f"; not tested: NRF-PGD has {nrf.mean():.3g} % on the standard one"
    return [
        Claim(
            "On standard-trained networks the success of attacks by non-robust features is high (over half)",
            SECTION,
            "success of NRF-PGD on the standard network, pairs of the table (%)",
            keep_learned(success[STANDARD, NRF], results.evaluations, row=STANDARD),
            50.0,
            bounds=SHARES,
            images=images,
        ),
        Claim(
            "On standard-trained networks attacks by robust features succeed considerably less than by non-robust ones "
            "(less than half as often)",
            SECTION,
            "net success on the standard network, pairs of the table: half of NRF-PGD minus RF-PGD",
            keep_learned(nrf / 2 - rf, results.evaluations),
            images=images,
        ),
        *(
            Claim(
                f"After adversarial training the success of both attacks is low (under {LOW:g} %)",
                SECTION,
                f"{LOW:g} minus the net success on the adversarially trained network, pairs of the table{failed}",
                [] if failed else keep_learned(LOW - net[ADVERSARIAL, attack], results.evaluations, row=ADVERSARIAL),
                setting=attack,
                images=images,
            )
            for attack in (NRF, RF)
        ),
    ]


EXPERIMENT = Experiment(
    id="D4",
    title="Attacks by non-robust and by robust features",
    paper="adversarial-training-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"success": "%", "unattacked": "%"},
    names={"row": "attack"},
    marks_published=False,
    caption=(
        "Share of test images of each class that a network classifies as the target class after an attack. The "
        "attack moves the representation of an image towards that of a random test image of the target class. The "
        "representation is that of a separate network, standard (NRF-PGD) or adversarially trained (RF-PGD). Means "
        "over seeds. The text of the paper lacks its radius, so published numbers may be at another one."
    ),
)
