"""A8: models of D_rand and D_det on a test set that played no part in any choice.

not-bugs-2019, Appendix D.7, uses CIFAR-10.1 (Recht et al., 2019), because choices may have adapted to
CIFAR-10's test split. A study without a second collection can compare the split that its choices used with an unused
split. This detects choices that fit only their split, but it tests no other collection: on the test split of D it
repeats A2.

Recht et al. show that for models trained on D the accuracy on CIFAR-10.1 is a linear function of that on CIFAR-10. The
appendix finds models of D_rand and D_det above this line. The paper means the line of Recht et al.; here it goes
through the study's own models of D.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.a2_random_and_deterministic_targets import LABEL_SHIFTS
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    LEAST_LEARNED,
    above_learned,
    add_published,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct, Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.pipeline.plan.recipe import Recipe

DERIVED_SETS = ("D_rand", "D_det")
ON_D = "D"
SECTION = "not-bugs-2019, Appendix D.7"


@dataclass(frozen=True, kw_only=True)
class Sample(Strict):
    """A split of D or of another named data set with the same classes in the same order."""

    data: Name = "D"
    """D, or the name of a set of `other_data`."""
    split: Split = "test"
    """The split of that data set."""

    @property
    def shown(self) -> str:
        """The name in table and figure."""
        return self.data if self.data != "D" and self.split == "test" else f"{self.data} {self.split}"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Two samples of images, and the models of the linear fit.

    `fitted` names other architectures of the study. The line goes through one model of each, trained on D, and through
    the study's own network after standard and after adversarial training. Without `fitted` there is no line.
    """

    used: Sample = field(default_factory=Sample)
    """The images that choices may have used."""
    fresh: Sample
    """The images that no choice used."""
    fitted: Annotated[tuple[Name, ...], Distinct] = ()
    """Other architectures of the study, for the fit; no fit without them."""

    @property
    def fresh_name(self) -> str:
        """The name of the fresh images in table and figure; A2 tests on the test split of D too."""
        return f"{self.fresh.shown} (as in A2)" if self.fresh == Sample() else self.fresh.shown


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Two evaluations per model and seed.

    Raises:
        UserError: the used images are the fresh ones.
    """
    if settings.used == settings.fresh:
        raise UserError("experiments.A8.fresh: the same images as `used`")
    names = {settings.used: settings.used.shown, settings.fresh: settings.fresh_name}
    found = []
    for seed in pieces.study.seeds:
        models = {ON_D: pieces.source_model("standard", seed)}
        models |= {name: pieces.downstream_model(name, seed) for name in DERIVED_SETS}
        if settings.fitted:
            models[f"{ON_D}, adversarial"] = pieces.source_model("adversarial", seed)
        for name in settings.fitted:
            models[f"{ON_D}, {name}"] = pieces.source_model("standard", seed, architecture=name)
        for sample, test_set in names.items():
            found += [
                Need(row, seed, _evaluation(pieces, model, sample), {"test_set": test_set})
                for row, model in models.items()
            ]
    return found


def _evaluation(pieces: Pieces, model: Recipe, sample: Sample) -> Recipe:
    data = None if sample.data == "D" else pieces.data(sample.data)
    return pieces.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS, data=data, split=sample.split)


def predict_by_fit(results: Results) -> pd.DataFrame:
    """The accuracy on fresh images that the fit predicts from that on used ones: columns row, seed, accuracy (percent).

    One line per set of `DERIVED_SETS` and seed. The fit is least squares through the models of D of the same seed. The
    accuracy is NaN where all of these are equally good on the used images.
    """
    import numpy as np
    import pandas as pd

    settings: Settings = results.settings
    wide = results.clean.pivot_table(index=["seed", "row"], columns="test_set", values="accuracy")
    used, fresh = wide[settings.used.shown], wide[settings.fresh_name]
    predicted = []
    for seed in wide.index.unique("seed"):
        on_d = [row for row in used[seed].index if row not in DERIVED_SETS]
        flat = np.ptp(used[seed][on_d]) == 0
        slope, intercept = (np.nan, np.nan) if flat else np.polyfit(used[seed][on_d], fresh[seed][on_d], deg=1)
        predicted += [
            {"row": row, "seed": seed, "accuracy": float(intercept + slope * used[seed][row])} for row in DERIVED_SETS
        ]
    return pd.DataFrame(predicted)


def _with_fit(results: Results) -> pd.DataFrame:
    """The clean accuracies, and those that the fit predicts as a further test set."""
    import pandas as pd

    rows = results.clean
    settings: Settings = results.settings
    if not settings.fitted:
        return rows
    predicted = predict_by_fit(results).assign(test_set=f"{settings.fresh_name}, by the linear fit", eps=0.0)
    return pd.concat([rows, predicted], ignore_index=True)


def table(results: Results) -> pd.DataFrame:
    """One line per model and test set, and the prediction of the fit."""
    columns = ["row", "test_set", "eps"]
    return add_published(summarise_seeds(_with_fit(results), columns), results, columns)


def figure(results: Results) -> Figure:
    """Bars per training set: on the used images, on the fresh images, and as the fit predicts."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    rows = _with_fit(results)
    return grouped_bars(
        rows[rows["row"].isin((ON_D, *DERIVED_SETS))],
        group="row",
        bar="test_set",
        bar_label=lambda test_set: f"on {test_set}",
        xlabel="trained on",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.7 on these rows."""
    rows = results.clean
    settings: Settings = results.settings
    # The paper's sentences are about another collection than D. Of the test split of D, A2 says the first.
    control = settings.fresh.data == "D"
    fresh = {name: select_by_seed(rows, row=name, test_set=settings.fresh_name) for name in DERIVED_SETS}
    predicted = predict_by_fit(results) if settings.fitted else None
    return [
        Claim(
            "Models of relabelled adversarial examples generalise to images that no choice was made on (taken as "
            f"{LEAST_LEARNED})",
            SECTION,
            f"accuracy on {settings.fresh_name}: {name} minus {LEAST_LEARNED}",
            above_learned(fresh[name], select_by_seed(rows, value="chance", row=name, test_set=settings.fresh_name)),
            setting=name,
            control=control,
        )
        for name in DERIVED_SETS
    ] + [
        Claim(
            "These models do better on such images than the linear fit through models of D predicts",
            SECTION,
            f"accuracy on {settings.fresh_name}: {name} minus the prediction",
            fresh[name] - select_by_seed(predicted, row=name),
            setting=name,
            control=control,
        )
        for name in DERIVED_SETS
        if predicted is not None
    ]


EXPERIMENT = Experiment(
    id="A8",
    title="A fresh test set",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Clean accuracy of models trained on D, D_rand and D_det, on two sets of images. Choices may have used one "
        "set. No choice used the other one, the fresh images. If these are the test split of D, they repeat A2. For "
        "each seed a line is fitted through models of D: the study's network after standard and after adversarial "
        "training, and other architectures. It predicts the accuracy on the fresh images from that on the others. Bars "
        "are means, whiskers standard deviations, dots the seeds."
    ),
)
