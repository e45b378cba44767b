"""X6: the radius of D_rand and D_det swept: when is a perturbation small?

A control of ours. A network trained on D_det generalises to D. Imperceptible features explain this only if the attack
cannot turn an image into one of another class. So the accuracies stand beside the share of images with an image of
another class within 2 eps. The balls of radius eps round two such images meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.derived.settings import TargetedAttack
from robustfeatures.engine.settings import PositiveFloat
from robustfeatures.errors import UserError
from robustfeatures.experiments import x1_robust_feature_leakage as x1
from robustfeatures.experiments.a2_random_and_deterministic_targets import LABEL_SHIFTS
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    LEAST_LEARNED,
    above_learned,
    keep_if_any_learned,
    keep_learned,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.experiments.shared.units import percent
from robustfeatures.experiments.x1_robust_feature_leakage import DERIVED_SETS
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.checks import check_reach
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "control of not-bugs-2019, Section 3.2 and Appendix D.4"
DISTANCES = "distances in D"
# The measured quantities, and the names of their curves.
ACCURACY, PERMUTED, LEAKED, WITHIN = "accuracy", "permuted", "leaked", "within_2_eps"
CURVES = {
    ACCURACY: "on D",
    PERMUTED: "on D, permuted labels",
    LEAKED: "on D, robust linear features",
    WITHIN: "images with another class within 2 eps",
}


@dataclass(frozen=True, kw_only=True)
class Settings(x1.Settings):
    """The radii, and the settings of X1, for the leakage."""

    radii: Annotated[tuple[PositiveFloat, ...], MinLen(1), Distinct]
    """The radii of the attacks that make D_rand and D_det."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Per seed and radius the leakage and two evaluations; once, the distances between the classes.

    At the radius that the study's own D_rand and D_det have, these are the sets of A2 and of X1.

    Raises:
        UserError: D_rand or D_det is not made by a targeted attack, their norms differ, or a radius is too large for
            the steps of their attack.
    """
    attacks = _find_attacks(pieces)
    first, second = (attacks[name].norm for name in DERIVED_SETS)
    if first != second:
        raise UserError(f"derived.D_det.method.norm: X6 needs the norm of D_rand, {first}")
    distances = pieces.measurement(
        f"{pieces.data().label}-nearest-other-class",
        "measurements.nearest_other_class",
        {"norm": first, "radii": settings.radii},
        {"data": pieces.data()},
        seed=pieces.study.seeds[0],
    )
    found = [Need(DISTANCES, pieces.study.seeds[0], distances)]
    for radius in settings.radii:
        for attack in attacks.values():
            check_reach(attack.steps, attack.step_size / radius, f"experiments.X6.radii: {radius:g}")
        swept, names = _change_radius(pieces, attacks, radius)
        suffix = "" if all(attack.eps == radius for attack in attacks.values()) else f"-eps{radius:g}"
        for seed in pieces.study.seeds:
            leakage = x1.make_leakage(swept, settings, seed, names, suffix=suffix)
            found.append(Need(f"{x1.LINEAR}, eps {radius:g}", seed, leakage, {"radius": radius}))
            for derived, name in names.items():
                model = swept.downstream_model(name, seed)
                evaluation = swept.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS)
                row = f"{derived}, eps {radius:g}"
                found.append(Need(row, seed, evaluation, {"derived": derived, "radius": radius}))
    return found


def _find_attacks(pieces: Pieces) -> dict[str, TargetedAttack]:
    """The attacks behind the study's D_rand and D_det."""
    found = {}
    for name in DERIVED_SETS:
        method = pieces.derived_set(name).method
        if not isinstance(method, TargetedAttack):
            raise UserError(f"derived.{name}.method: X6 needs a targeted-attack")
        found[name] = method
    return found


def _change_radius(
    pieces: Pieces, attacks: Mapping[str, TargetedAttack], radius: float
) -> tuple[Pieces, dict[str, str]]:
    """The pieces with D_rand and D_det of this radius beside the study's own, and the name of each there."""
    derived, names = dict(pieces.study.derived), {}
    for name, attack in attacks.items():
        names[name] = name if attack.eps == radius else f"{name}-eps{radius:g}"
        derived[names[name]] = replace(pieces.derived_set(name), method=replace(attack, eps=radius))
    return replace(pieces, study=replace(pieces.study, derived=derived)), names


def _measure(results: Results) -> pd.DataFrame:
    """Columns derived, radius, seed, and in percent: accuracy, permuted, leaked, within_2_eps."""
    clean = results.evaluations.assign(quantity=results.evaluations["label_shift"].map({0: ACCURACY, 1: PERMUTED}))
    keys = ["derived", "radius", "seed"]
    rows = clean.pivot_table(index=keys, columns="quantity", values="accuracy", sort=False).reset_index()
    measured = results.measurements
    within = measured[measured["row"] == DISTANCES].assign(**{WITHIN: lambda found: percent(found["within"])})
    leaked = measured[measured["trained_on"].isin(DERIVED_SETS)].rename(columns={"trained_on": "derived"})
    leaked = leaked.assign(**{LEAKED: percent(leaked["accuracy"])})
    found: pd.DataFrame = rows.merge(leaked[[*keys, LEAKED]], on=keys).merge(within[["radius", WITHIN]], on="radius")
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per derived set and radius."""
    return summarise_seeds(_measure(results), ["derived", "radius", WITHIN], values=(ACCURACY, PERMUTED, LEAKED))


def figure(results: Results) -> Figure:
    """A panel per derived set: the three accuracies and the share of images over the radius, and a level at chance."""
    import pandas as pd

    from robustfeatures.experiments.shared.plots import curves

    keys = ["derived", "radius", "seed"]
    rows = _measure(results).melt(keys, value_vars=list(CURVES), var_name="quantity", value_name="share")
    return curves(
        rows,
        panel="derived",
        line="quantity",
        line_label=CURVES.__getitem__,
        x="radius",
        xlabel="eps of the attack",
        value="share",
        ylabel="accuracy or share of images (%)",
        levels={"chance": pd.DataFrame({"share": [results.chance]})},
    )


def claims(results: Results) -> list[Claim]:
    """The sentences of A2, A7 and X1 on D_rand and D_det, at each radius."""
    rows, chance = _measure(results), results.chance

    def of(derived: str, quantity: str, radius: float) -> pd.Series:
        return select_by_seed(rows, value=quantity, derived=derived, radius=radius)

    found = []
    for radius in results.settings.radii:
        rand, det = (of(name, ACCURACY, radius) for name in DERIVED_SETS)
        tested = results.evaluations[results.evaluations["radius"] == radius]
        compared = [
            *(
                (
                    f"A model trained on {name} generalises to D (taken as {LEAST_LEARNED})",
                    f"{name}: accuracy on D minus {LEAST_LEARNED}",
                    above_learned(values, chance),
                )
                for name, values in (("D_rand", rand), ("D_det", det))
            ),
            (
                "A model trained on D_det has learned more of D than of its permuted labels",
                "D_det: accuracy on D minus accuracy on D with its labels permuted",
                keep_if_any_learned(det - of("D_det", PERMUTED, radius), tested[tested["derived"] == "D_det"]),
            ),
            (
                "Most of D_rand's accuracy does not leak in through robust linear features (taken as half, above "
                "chance)",
                "D_rand, accuracy on D above chance: half of the network's minus that of the robust linear features",
                keep_learned(
                    (rand - chance) / 2 - (of("D_rand", LEAKED, radius) - chance),
                    tested,
                    derived="D_rand",
                    label_shift=0,
                ),
            ),
        ]
        found += [
            Claim(sentence, SECTION, quantity, values, setting=f"eps {radius:g}", control=True)
            for sentence, quantity, values in compared
        ]
    return found


EXPERIMENT = Experiment(
    id="X6",
    title="When is a perturbation small?",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units=dict.fromkeys(CURVES, "%"),
    caption=(
        "D_rand and D_det made with attacks of several radii eps; all else is as for the study's own sets. Accuracy on "
        "the test split of D, and on it relabelled by t(y) = (y + 1) mod C (permuted), of networks trained on them. "
        "The curve of robust linear features is a logistic regression on these alone, as in X1. The features are the "
        "same at every eps. If eps is above the radius of their adversarial training, the attack may change them too. "
        "The last curve is the share of the training images of D that have an image of another class within 2 eps. "
        "Attacks of radius eps can move two such images to the same point. Lines are means over seeds, bands standard "
        "deviations."
    ),
)
