"""X5: predictions of the source network for D_rand and D_det, with and without augmentation.

A control: after a failed attack an image has a wrong label and no features of this label. An attack that fails under
augmentation may be useless in training with augmentation. not-bugs-2019, Appendix D.4, says about a robust source that
"the prediction of the classifier will not change".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.attack_success import AUGMENTATION, add_shares, make_attack_success
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Augmentation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_rand", "D_det", "D_rand-robust", "D_det-robust")
ORIGINAL = "D"
SECTION = "not-bugs-2019, Section 3.2 and Appendix D.4"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The augmentation of the measurement, independent of that in training."""

    augmentation: Augmentation = AUGMENTATION
    """The augmentation of the measurement."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per set and seed; D with the standard source shows the effect of augmentation alone."""
    found = []
    for seed in pieces.study.seeds:
        derived = {name: pieces.derived(name, seed) for name in DERIVED_SETS}
        sets = {name: (recipe, recipe.inputs["source"]) for name, recipe in derived.items()}
        sets[ORIGINAL] = (pieces.data(), pieces.source_model("standard", seed))
        for name, (data, source) in sets.items():
            family = f"{pieces.data().label}-{name}"
            success = make_attack_success(pieces, family, data, source, seed, augmentation=settings.augmentation)
            found.append(Need(name, seed, success))
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per set and augmentation."""
    columns, values = ["row", "augmentation"], ("kept", "success")
    summary = summarise_seeds(add_shares(results.measurements), columns, values=values)
    return add_published(summary, results, columns, values=values)


def figure(results: Results) -> Figure:
    """Two bars per set: the success of the attack without and with augmentation."""
    from robustfeatures.experiments.shared.plots import grouped_bars
    from robustfeatures.experiments.shared.sources import name_source

    rows = add_shares(results.measurements).dropna(subset="success")
    return grouped_bars(
        rows.assign(row=rows["row"].map(name_source)),
        group="row",
        bar="augmentation",
        bar_label=lambda augmentation: "as it is" if augmentation == "none" else "under augmentation",
        value="success",
        ylabel="attack success on the source (%)",
        xlabel="derived set",
    )


def claims(results: Results) -> list[Claim]:
    """The assumption of the construction in Section 3.2, and the claim of Appendix D.4 on a robust source."""
    rows = add_shares(results.measurements)

    def of(value: str, name: str, augmentation: str) -> pd.Series:
        return select_by_seed(rows, value=value, row=name, augmentation=augmentation)

    standard = [
        Claim(
            f"The attack reaches its target on nearly all images (taken as nine tenths){suffix}",
            SECTION,
            f"{name}: success on the source{suffix} minus 90 %",
            of("success", name, augmentation) - 90,
            setting=name,
            control=True,
        )
        for name in DERIVED_SETS[:2]
        for augmentation, suffix in (("none", ""), ("augmented", " under augmentation"))
    ]
    robust = [
        Claim(
            "With a robust source the attack seldom reaches its target (taken as less than a tenth of the images)",
            SECTION,
            f"{name}: 10 % minus success on the source",
            10 - of("success", name, "none"),
            setting=name.removesuffix("-robust"),
            control=True,
        )
        for name in DERIVED_SETS[2:]
    ]
    return [*standard, *robust]


EXPERIMENT = Experiment(
    id="X5",
    title="Attack success on the source",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"kept": "%", "success": "%"},
    names={"row": "set"},
    caption=(
        "Share of the images of D_rand and D_det that the source network classifies as their target. Images whose "
        "target is their class are left out. One bar is without augmentation, the other under one draw of "
        "augmentation. Bars are means, whiskers standard deviations, dots the seeds. In the table, kept is the share "
        "of all images for which the source predicts the original class. With C classes, one image in C of D_rand has "
        "its own class as target."
    ),
)
