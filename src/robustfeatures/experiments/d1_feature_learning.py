"""D1: the features that standard and adversarial training learn on patch data, step by step.

adversarial-training-2025, Section 6.1 and Figure 3. Our copy of the text has lost the paper's constants, so the
figure shows several settings that meet Assumptions 2.3 and B.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import select_by_seed, summarise_seeds
from robustfeatures.experiments.shared.units import MINUS_SHARES, SHARES, percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.theory.settings import Patches

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


PAPER = "adversarial-training-2025"
ROBUST, NON_ROBUST = "robust_correlation", "non_robust_correlation"
ATTACKS = {
    "one_step": "one step",
    "rotated": "rotated",
    "planted": "planted",
    "planted_and_lowered": "planted and lowered",
    "pgd": "PGD",
}
ALONE = ("robust_features_alone", "non_robust_features_alone")
ACCURACIES = ("clean", *ATTACKS, "robust", "certified", *ALONE, "trained_clean", "trained_robust")

SHOWN = {
    "clean": "clean",
    "one_step": "one step",
    "rotated": "non-robust features rotated",
    "planted": "robust features planted",
    "pgd": "PGD",
}
# What counts as good or perfect, and as bad, where a theorem says 1 - o(1), "for all" or o(1); percent.
GOOD, PERFECT, BAD = 95.0, 99.0, 5.0
# A smaller change of an accuracy, in percentage points, is no rise.
RISE = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Named settings of the data and both trainings; their duration and test attacks."""

    settings: Annotated[Mapping[Name, Patches], MinLen(1)]
    """Settings of the data and of both trainings, by name."""
    training_steps: Annotated[int, Ge(1)]
    """The steps of both trainings, T."""
    every: Annotated[int, Ge(1)]
    """The number of steps between two measurements."""
    test_samples: Annotated[int, Ge(1)] = 200
    """The number of test points."""
    pgd_steps: Annotated[int, Ge(1)] = 10
    """The steps of PGD."""
    pgd_relative_step_size: Annotated[float, Gt(0)] = 0.25
    """The length of a step of PGD as a share of the radius."""
    pgd_random_starts: Annotated[int, Ge(0)] = 1
    """The number of random starts of PGD, beside the start at the point."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement of both trainings per setting and seed."""
    found = []
    for name, constants in settings.settings.items():
        for seed in pieces.study.seeds:
            asked = {
                "constants": constants,
                "steps": settings.training_steps,
                "every": settings.every,
                "test_samples": settings.test_samples,
                "pgd_steps": settings.pgd_steps,
                "pgd_relative_step_size": settings.pgd_relative_step_size,
                "pgd_random_starts": settings.pgd_random_starts,
            }
            recipe = pieces.simulation(f"patches-{name}", "theory.patch_training", asked, seed)
            found.append(Need(name, seed, recipe))
    return found


def _accuracies_in_percent(results: Results) -> pd.DataFrame:
    rows = results.measurements
    return rows.assign(**{name: percent(rows[name]) for name in ACCURACIES})


def _find_phase_changes(rows: pd.DataFrame) -> pd.Series:
    """Per row, training and seed: the measured step at which the lead of non-robust correlation is largest.

    After it robust features grow faster than non-robust ones. In standard training the lead may grow to the end. Then
    the step is the last measured one.
    """
    lead = (rows[NON_ROBUST] - rows[ROBUST]).groupby([rows["row"], rows["training"], rows["seed"]], sort=False)
    found: pd.Series = rows.loc[lead.idxmax()].set_index(["row", "training", "seed"])["step"]
    return found


def table(results: Results) -> pd.DataFrame:
    """Per setting and training: the values at the last step, and the step of the phase change."""
    rows = _accuracies_in_percent(results)
    last = rows[rows["step"] == rows["step"].max()].merge(
        _find_phase_changes(rows).rename("phase_change").reset_index()
    )
    return summarise_seeds(last, ["row", "training"], values=["phase_change", ROBUST, NON_ROBUST, *ACCURACIES])


def figure(results: Results) -> Figure:
    """A row per setting: a panel per correlation and per accuracy, with a line for each training."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.lines import draw_mean
    from robustfeatures.experiments.shared.plots.style import SMALL, WIDEST, distinct, legend_above, wrap

    rows = _accuracies_in_percent(results)
    names, trainings = distinct(rows["row"]), distinct(rows["training"])
    panels = {ROBUST: "robust features", NON_ROBUST: "non-robust features", **SHOWN}
    drawn = Figure(figsize=(WIDEST, 1.8 * len(names) + 1.2), layout="constrained")
    grid = drawn.subplots(len(names), len(panels), sharex=True, squeeze=False)
    changes = _find_phase_changes(rows).groupby(["row", "training"]).mean()
    handles: list[Any] = []
    for place, (line, name) in enumerate(zip(grid, names, strict=True)):
        for axes, (column, title) in zip(line, panels.items(), strict=True):
            measured = "accuracy (%)" if column in SHOWN else "correlation"
            axes.set_ylim(0, 102 if column in SHOWN else 1.02)
            handles = [
                draw_mean(
                    axes,
                    rows[(rows["row"] == name) & (rows["training"] == training)],
                    x="step",
                    value=column,
                    ylabel=measured,
                    number=number,
                    label=f"{training} training",
                )
                for number, training in enumerate(trainings)
            ]
            change = axes.axvline(changes[name, "adversarial"], color="0.5", lw=0.8, linestyle=":")
            change.set_label("phase change of adversarial training")
            handles.append(change)
            if column == ROBUST:
                axes.set_ylabel(f"{name}\n{measured}")
            elif column == next(iter(SHOWN)):
                axes.set_ylabel(measured)
            else:
                axes.tick_params(labelleft=False)
            if place == 0:
                axes.set_title(wrap(title, 1.1, SMALL), fontsize=SMALL)
            if place == len(names) - 1:
                axes.set_xlabel("step")
    legend_above(drawn, handles)
    return drawn


def claims(results: Results) -> list[Claim]:
    """The claims of Theorems 4.3 and 4.4 and Section 6.1; each setting of the data is a setting of every sentence."""
    rows = _accuracies_in_percent(results)
    found = []
    for name in results.settings.settings:
        of_setting = rows[rows["row"] == name]
        found += [
            *_standard_training_claims(name, of_setting),
            *_phase_claims(name, of_setting),
            *_adversarial_training_claims(name, of_setting),
        ]
    return found


def _at_end(rows: pd.DataFrame, training: str, column: str) -> pd.Series:
    return select_by_seed(rows, value=column, training=training, step=rows["step"].max())


def _claim(
    sentence: str,
    where: str,
    quantity: str,
    values: pd.Series,
    setting: str,
    threshold: float = 0.0,
    *,
    bounds: tuple[float, float] | None = None,
) -> Claim:
    return Claim(sentence, f"{PAPER}, {where}", quantity, values, threshold, setting, bounds=bounds)


def _standard_training_claims(name: str, rows: pd.DataFrame) -> list[Claim]:
    def end(column: str) -> pd.Series:
        return _at_end(rows, "standard", column)

    return [
        _claim(
            "In standard training the learning of non-robust features dominates",
            "Section 6.1",
            "last step: non-robust minus robust correlation",
            end(NON_ROBUST) - end(ROBUST),
            name,
        ),
        _claim(
            "Standard training is perfect on the training points (99 of 100)",
            "Theorem 4.3",
            "accuracy on the training points (%)",
            end("trained_clean"),
            name,
            PERFECT,
            bounds=SHARES,
        ),
        _claim(
            "In standard training non-robust features are learned: alone they suffice (95 of 100)",
            "Theorem 4.3 and Definition 4.1",
            "accuracy with all robust patches zero (%)",
            end("non_robust_features_alone"),
            name,
            GOOD,
            bounds=SHARES,
        ),
        _claim(
            "Standard training reaches a good standard accuracy (95 of 100)",
            "Theorem 4.3",
            "clean accuracy (%)",
            end("clean"),
            name,
            GOOD,
            bounds=SHARES,
        ),
        _claim(
            "After standard training non-robust features of another class fool the network (accuracy under 5 %)",
            "Theorem 4.3",
            "minus the accuracy under rotated non-robust features (%)",
            -end("rotated"),
            name,
            -BAD,
            bounds=MINUS_SHARES,
        ),
    ]


def _phase_claims(name: str, rows: pd.DataFrame) -> list[Claim]:
    """Section 6.1 on adversarial training before and after its phase change.

    The paper's robust accuracy there is under PGD. The table also has that under all attacks together.
    """
    changes = rows.merge(_find_phase_changes(rows).rename("phase_change").reset_index())
    at_change = changes[changes["step"] == changes["phase_change"]].set_index("seed")
    before = at_change[at_change["training"] == "adversarial"]

    def growth(column: str, training: str = "adversarial") -> pd.Series:
        return _at_end(rows, training, column) - at_change.loc[at_change["training"] == training, column]

    def catching_up(training: str) -> pd.Series:
        return growth(ROBUST, training) - growth(NON_ROBUST, training)

    return [
        _claim(
            "Adversarial training first learns non-robust features, to perfect standard accuracy (99 of 100)",
            "Section 6.1",
            "clean accuracy at the phase change (%)",
            before["clean"],
            name,
            PERFECT,
            bounds=SHARES,
        ),
        _claim(
            "Until the phase change robust accuracy stays at zero (under 5 %)",
            "Section 6.1",
            "minus the accuracy under PGD at the phase change (%)",
            -before["pgd"],
            name,
            -BAD,
            bounds=MINUS_SHARES,
        ),
        _claim(
            "After the phase change robust features grow, and more than non-robust ones",
            "Section 6.1",
            # The lead is largest at the phase change, so that alone this is never negative.
            "growth of the robust minus that of the non-robust correlation, phase change to last step: adversarial "
            "minus standard training; or the growth of the robust one, if that is less",
            (catching_up("adversarial") - catching_up("standard")).clip(upper=growth(ROBUST)),
            name,
        ),
        _claim(
            "After the phase change robust accuracy rises (by 5 points)",
            "Section 6.1",
            "growth of the accuracy under PGD, phase change to last step (points)",
            growth("pgd"),
            name,
            RISE,
        ),
    ]


def _adversarial_training_claims(name: str, rows: pd.DataFrame) -> list[Claim]:
    def end(column: str, training: str = "adversarial") -> pd.Series:
        return _at_end(rows, training, column)

    return [
        _claim(
            "Adversarial training learns more of the robust features than standard training",
            "Section 1",
            "robust correlation at the last step, adversarial minus standard",
            end(ROBUST) - end(ROBUST, "standard"),
            name,
        ),
        _claim(
            "Adversarial training learns less of the non-robust features than standard training",
            "Section 1",
            "non-robust correlation at the last step, standard minus adversarial",
            end(NON_ROBUST, "standard") - end(NON_ROBUST),
            name,
        ),
        _claim(
            "Adversarial training is perfect on the training points under all attacks (99 of 100)",
            "Theorem 4.4",
            "accuracy on the training points under all attacks together (%)",
            end("trained_robust"),
            name,
            PERFECT,
            bounds=SHARES,
        ),
        _claim(
            "In adversarial training robust features are learned: alone they suffice (95 of 100)",
            "Theorem 4.4 and Definition 4.1",
            "accuracy with all non-robust patches zero (%)",
            end("robust_features_alone"),
            name,
            GOOD,
            bounds=SHARES,
        ),
        _claim(
            "Adversarial training reaches a good robust accuracy (95 of 100)",
            "Theorem 4.4",
            "accuracy under all attacks together (%)",
            end("robust"),
            name,
            GOOD,
            bounds=SHARES,
        ),
        *(
            Claim(
                "Adversarial training reaches a good accuracy under this attack alone (95 of 100)",
                f"{PAPER}, Theorem 4.4",
                "accuracy under one attack (%)",
                end(column),
                GOOD,
                f"{name}, {label}",
                control=True,
                bounds=SHARES,
            )
            for column, label in ATTACKS.items()
        ),
    ]


EXPERIMENT = Experiment(
    id="D1",
    title="Feature learning on patch data",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"phase_change": "step", **dict.fromkeys(ACCURACIES, "%")},
    names={"row": "setting"},
    caption=(
        "Normalised correlation of the best filter of each class with its robust and its non-robust feature. Beside "
        "it: accuracy on fresh points, clean and under attacks in the same ball. One step is the attack of training. "
        "Rotated: the attack turns the non-robust features of a point into those of another class. Planted: it adds "
        "the robust feature of another class to the other patches. PGD has random starts. Lines are means over "
        "seeds, bands standard deviations. At the phase change the lead of non-robust features is largest."
    ),
)
