"""D1: the features that standard and adversarial training learn on patch data, step by step.

adversarial-training-2025, Section 6.1 and Figure 3. Our copy of the text has lost the paper's constants, so the
figure shows several settings that meet Assumptions 2.3 and B.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.theory.settings import PatchConstants

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

    # A claim's sentence, place in the paper, quantity and values.
    Sentence = tuple[str, str, str, "pd.Series"]

PAPER = "adversarial-training-2025"
ROBUST, NON_ROBUST = "robust_correlation", "non_robust_correlation"
ACCURACIES = ("clean", "one_step", "replaced", "planted", "pgd", "robust_features_alone", "non_robust_features_alone")

SHOWN = {"clean": "clean", "one_step": "one step", "replaced": "replaced", "pgd": "PGD", "planted": "planted"}


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Named settings of the data and both trainings; their duration and test attacks.

    training_steps: T, of both trainings. every: the number of steps between two measurements. pgd_steps: the steps of
    PGD, each of `pgd_relative_step_size` times the radius.
    """

    settings: Annotated[Mapping[Name, PatchConstants], MinLen(1)]
    training_steps: Annotated[int, Ge(1)]
    every: Annotated[int, Ge(1)]
    test_samples: Annotated[int, Ge(1)] = 200
    pgd_steps: Annotated[int, Ge(1)] = 10
    pgd_relative_step_size: Annotated[float, Gt(0)] = 0.25


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement of both trainings per setting and seed."""
    found = []
    for name, constants in settings.settings.items():
        for seed in pieces.study.seeds:
            asked = {
                "constants": to_json(constants),
                "seed": seed,
                "steps": settings.training_steps,
                "every": settings.every,
                "test_samples": settings.test_samples,
                "pgd_steps": settings.pgd_steps,
                "pgd_relative_step_size": settings.pgd_relative_step_size,
            }
            recipe = pieces.measurement(f"patches-{name}", "theory.patch_training", asked, {}, seed=seed)
            found.append(Need(name, seed, recipe))
    return found


def _accuracies_in_percent(results: Results) -> pd.DataFrame:
    rows = results.measurements
    return rows.assign(**{name: percent(rows[name]) for name in ACCURACIES})


def _find_phase_changes(rows: pd.DataFrame) -> pd.Series:
    """Per row, training and seed: the measured step at which the lead of non-robust correlation is largest.

    After it robust features grow faster than non-robust ones. In standard training this never happens; there it is the
    step at which both stop growing.
    """
    lead = (rows[NON_ROBUST] - rows[ROBUST]).groupby([rows["row"], rows["training"], rows["seed"]], sort=False)
    found: pd.Series = rows.loc[lead.idxmax()].set_index(["row", "training", "seed"])["step"]
    return found


def table(results: Results) -> pd.DataFrame:
    """Per setting and training: the values at the last step, and the step of the phase change."""
    from robustfeatures.experiments.shared.summaries import summarise_seeds

    rows = _accuracies_in_percent(results)
    last = rows[rows["step"] == rows["step"].max()].merge(
        _find_phase_changes(rows).rename("phase_change").reset_index()
    )
    return summarise_seeds(last, ["row", "training"], values=["phase_change", ROBUST, NON_ROBUST, *ACCURACIES])


def figure(results: Results) -> Figure:
    """A row per setting: correlations and accuracies under standard training, then under adversarial training."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import distinct, legend_above, value_axis

    rows = _accuracies_in_percent(results)
    names, trainings = distinct(rows["row"]), distinct(rows["training"])
    drawn = Figure(figsize=(10.0, 2.0 * len(names) + 1.2), layout="constrained")
    grid = drawn.subplots(len(names), 2 * len(trainings), sharex=True, squeeze=False)
    changes = _find_phase_changes(rows).groupby(["row", "training"]).mean()
    handles: list[object] = []
    for number, name in enumerate(names):
        for column, training in enumerate(trainings):
            part = rows[(rows["row"] == name) & (rows["training"] == training)]
            left, right = grid[number][2 * column], grid[number][2 * column + 1]
            handles = _lines(left, part, {ROBUST: "robust feature", NON_ROBUST: "non-robust feature"}, first=0)
            handles += _lines(right, part, SHOWN, first=2)
            left.set_ylim(0, 1.02)
            left.set_ylabel(f"{name}\ncorrelation" if column == 0 else "correlation")
            value_axis(right, "accuracy (%)")
            if training == "adversarial":
                for axes in (left, right):
                    axes.axvline(changes[name, training], color="grey", lw=0.8, linestyle=":")
            if number == 0:
                left.set_title(training, fontsize=10)
                right.set_title(training, fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("step")
    legend_above(drawn, handles)
    return drawn


def _lines(axes: Axes, rows: pd.DataFrame, names: Mapping[str, str], *, first: int) -> list[object]:
    """Means over seeds with bands of a standard deviation, in the styles from number `first` on."""
    from robustfeatures.experiments.shared.plots.style import COLOURS, STYLES

    handles: list[object] = []
    for number, (column, label) in enumerate(names.items(), start=first):
        found = rows.groupby("step")[column].agg(["mean", "std"]).fillna(0.0)
        colour = COLOURS[number % len(COLOURS)]
        style = STYLES[number % len(STYLES)]
        handles += axes.plot(found.index, found["mean"], linestyle=style, color=colour, label=label)
        axes.fill_between(
            found.index, found["mean"] - found["std"], found["mean"] + found["std"], color=colour, alpha=0.2, lw=0
        )
    return handles


def claims(results: Results) -> list[Claim]:
    """The claims of Theorems 4.3 and 4.4 and Section 6.1, for each setting."""
    from robustfeatures.experiments.shared.claims import Claim

    rows = _accuracies_in_percent(results)
    found = []
    for name in results.settings.settings:
        of_setting = rows[rows["row"] == name]
        found += [
            Claim(sentence, f"{PAPER}, {where}", f"{name}: {quantity}", list(values))
            for sentence, where, quantity, values in (
                *_standard_training_claims(of_setting),
                *_adversarial_training_claims(of_setting),
            )
        ]
    return found


def _at_end(rows: pd.DataFrame, training: str, column: str) -> pd.Series:
    from robustfeatures.experiments.shared.summaries import select_by_seed

    return select_by_seed(rows, value=column, training=training, step=rows["step"].max())


def _standard_training_claims(rows: pd.DataFrame) -> list[Sentence]:
    lead = _at_end(rows, "standard", NON_ROBUST) - _at_end(rows, "standard", ROBUST)
    return [
        (
            "In standard training the learning of non-robust features dominates",
            "Section 6.1",
            "last step: non-robust minus robust correlation",
            lead,
        ),
        (
            "Standard training reaches a good standard accuracy (95 of 100)",
            "Theorem 4.3",
            "clean accuracy minus 95",
            _at_end(rows, "standard", "clean") - 95,
        ),
        (
            "After standard training replaced non-robust features fool the network (accuracy under 5 %)",
            "Theorem 4.3",
            "5 minus accuracy under the replacement",
            5 - _at_end(rows, "standard", "replaced"),
        ),
    ]


def _adversarial_training_claims(rows: pd.DataFrame) -> list[Sentence]:
    def end(column: str) -> pd.Series:
        return _at_end(rows, "adversarial", column)

    changes = _find_phase_changes(rows).reset_index().rename(columns={"step": "phase_change"})
    adversarial = rows[rows["training"] == "adversarial"].merge(changes)
    before = adversarial[adversarial["step"] == adversarial["phase_change"]].set_index("seed")
    return [
        (
            "Adversarial training first learns non-robust features, to perfect standard accuracy (95 of 100)",
            "Section 6.1",
            "clean accuracy at the phase change, minus 95",
            before["clean"] - 95,
        ),
        (
            "After the phase change robust features grow more than non-robust ones",
            "Section 6.1",
            "growth of the robust minus that of the non-robust correlation, phase change to last step",
            (end(ROBUST) - before[ROBUST]) - (end(NON_ROBUST) - before[NON_ROBUST]),
        ),
        (
            "Adversarial training learns more of the robust features than standard training",
            "Theorem 4.4",
            "robust correlation at the last step, adversarial minus standard",
            end(ROBUST) - _at_end(rows, "standard", ROBUST),
        ),
        (
            "After adversarial training the robust features alone suffice (95 of 100)",
            "Theorem 4.4 and Definition 4.1",
            "accuracy with all non-robust patches zero, minus 95",
            end("robust_features_alone") - 95,
        ),
        *(
            (
                f"Adversarial training ends with a good robust accuracy {how} (95 of 100)",
                "Theorem 4.4",
                f"accuracy {how}, minus 95",
                end(column) - 95,
            )
            for column, how in (
                ("one_step", "under the attack of training"),
                ("replaced", "under replaced non-robust features"),
                ("pgd", "under PGD"),
                ("planted", "under planted robust features"),
            )
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
    caption=(
        "Normalised correlation of the best filter of each class with its robust and its non-robust feature, and "
        "accuracy on fresh points, clean and under four attacks in the same ball, for standard and adversarial "
        "training. Lines are means over seeds, bands standard deviations; after the dotted line robust "
        "features grow faster than non-robust ones."
    ),
)
