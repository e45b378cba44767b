"""C2: accuracy on clean images against the radius of training. at-odds-2019, Figure 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.experiments.at_odds import (
    NORM_NAMES,
    PAPER,
    AdversarialTrainings,
    budget,
    network,
    test_accuracy,
)
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.recipes.parameters import NormName, PositiveFloat
from robustfeatures.recipes.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.claims import Claim


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Radii of training per norm; radius 0, standard training, is always there."""

    eps: Annotated[Mapping[NormName, Annotated[tuple[PositiveFloat, ...], MinLen(1)]], MinLen(1)]


def _cells(settings: Settings) -> Iterator[tuple[NormName, float]]:
    for norm, radii in settings.eps.items():
        for eps in (0.0, *sorted(radii)):
            yield norm, eps


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One network per norm, radius and seed; those of radius 0 are the same in both norms."""
    found = {}
    for seed in pieces.study.seeds:
        for norm, eps in _cells(settings):
            row = budget(norm, eps)
            if (row, seed) not in found:
                found[row, seed] = Need(row, seed, network(pieces, settings, seed, norm, eps))
    return list(found.values())


def _measured(results: Results) -> pd.DataFrame:
    """Columns norm, eps_train, seed, accuracy (percent)."""
    import pandas as pd

    last = test_accuracy(results.histories)
    parts = [
        last[last["row"] == budget(norm, eps)].assign(norm=NORM_NAMES[norm], eps_train=eps)
        for norm, eps in _cells(results.settings)
    ]
    return pd.concat(parts, ignore_index=True)[["norm", "eps_train", "seed", "accuracy"]]


def table(results: Results) -> pd.DataFrame:
    """One line per norm and radius."""
    from robustfeatures.experiments.summaries import over_seeds, with_published

    by = ["norm", "eps_train"]
    return with_published(over_seeds(_measured(results), by), results, by)


def figure(results: Results) -> Figure:
    """A panel per norm, as in Figure 7."""
    from robustfeatures.experiments.sweeps import lines

    return lines(_measured(results), x="eps_train", line="norm", xlabel="eps of training", crossings=None)


def claims(results: Results) -> list[Claim]:
    """What Figure 7 shows: a decline that is steady."""
    import numpy as np

    from robustfeatures.experiments.claims import Claim

    rows = _measured(results)
    found = []
    for norm in rows["norm"].unique():
        wide = rows[rows["norm"] == norm].pivot_table(index="seed", columns="eps_train", values="accuracy")
        radii, accuracies = np.asarray(wide.columns, dtype=float), wide.to_numpy()
        steepest = accuracies[:, :-1] - accuracies[:, 1:]
        found += [
            Claim(
                f"Accuracy on clean images falls as the radius of {norm} adversarial training grows",
                f"{PAPER}, Figure 7",
                f"accuracy: eps_train 0 minus {radii[-1]:g}",
                list(accuracies[:, 0] - accuracies[:, -1]),
            ),
            Claim(
                f"The decline with the radius of {norm} adversarial training is consistent: no radius is better than the "
                "one before",
                f"{PAPER}, Figure 7",
                "accuracy: least decline from one radius to the next",
                list(steepest.min(axis=1)),
            ),
        ]
    return found


EXPERIMENT = Experiment(
    id="C2",
    title="Accuracy against the radius of training",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy on clean test images against the radius of adversarial training; 0 is standard training. "
        "Lines are means over seeds, bands standard deviations."
    ),
)
