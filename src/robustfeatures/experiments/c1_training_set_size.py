"""C1: accuracy on clean images against the number of training images, for several radii of training.

at-odds-2019, Section 2, Figures 1 (L2) and 6 (Linf).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.experiments.at_odds import (
    NORM_NAMES,
    PAPER,
    TEST,
    AdversarialTrainings,
    budget,
    network,
    test_accuracy,
    training,
)
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.recipes.parameters import NormName, PositiveFloat, PositiveInt, Strict, Subset
from robustfeatures.recipes.pieces import Pieces
from robustfeatures.recipes.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.claims import Claim

WHOLE = "all"


@dataclass(frozen=True, kw_only=True)
class Size(Strict):
    """A number of training images, and the epochs to train on them; milestones of the training move along."""

    samples: PositiveInt
    epochs: PositiveInt


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Radii of training per norm, and sizes below that of the whole training set, which is always there."""

    eps: Annotated[Mapping[NormName, Annotated[tuple[PositiveFloat, ...], MinLen(1)]], MinLen(1)]
    sizes: Annotated[tuple[Size, ...], MinLen(1)]


def _cells(settings: Settings) -> Iterator[tuple[NormName, float, Size | None]]:
    for norm, radii in settings.eps.items():
        for eps in (0.0, *radii):
            for size in (*settings.sizes, None):
                yield norm, eps, size


def _row(norm: NormName, eps: float, size: Size | None) -> str:
    return f"{budget(norm, eps)} on {size.samples if size else WHOLE}"


def _trained(pieces: Pieces, settings: Settings, seed: int, norm: NormName, eps: float, size: Size | None) -> Recipe:
    if size is None:
        return network(pieces, settings, seed, norm, eps)
    chosen = training(pieces, settings, norm, eps)
    stretched = replace(
        chosen,
        epochs=size.epochs,
        milestones=tuple(max(1, round(epoch * size.epochs / chosen.epochs)) for epoch in chosen.milestones),
    )
    # Each seed draws its own images, so that the band over seeds holds what the choice of images does.
    drawn = Subset(kind="subset", split="train", samples=size.samples, seed=seed)
    data = pieces.narrowed(f"{size.samples}-seed{seed}", [drawn])
    label = f"{pieces.data().label}-{size.samples}-{settings.training}-against-{budget(norm, eps)}"
    return pieces.model(label, stretched, seed, {"data": data}, probes=[TEST])


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One network per norm, radius, size and seed; those of radius 0 are the same in both norms."""
    first = pieces.study.seeds[0]
    found = {("D", first): Need("D", first, pieces.data())}
    for seed in pieces.study.seeds:
        for norm, eps, size in _cells(settings):
            row = _row(norm, eps, size)
            if (row, seed) not in found:
                found[row, seed] = Need(row, seed, _trained(pieces, settings, seed, norm, eps, size))
    return list(found.values())


def _measured(results: Results) -> pd.DataFrame:
    """Columns norm, eps_train, samples, seed, accuracy (percent)."""
    import pandas as pd

    from robustfeatures.data.dataset import read_dataset

    ((_, original),) = results.payloads.items()
    whole = len(read_dataset(original, "train", in_memory=False))
    last = test_accuracy(results.histories)
    parts = [
        last[last["row"] == _row(norm, eps, size)].assign(
            norm=NORM_NAMES[norm], eps_train=eps, samples=size.samples if size else whole
        )
        for norm, eps, size in _cells(results.settings)
    ]
    return pd.concat(parts, ignore_index=True)[["norm", "eps_train", "samples", "seed", "accuracy"]]


def _gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy beyond that of standard training on as many images, same columns, radii above 0 alone."""
    plain = rows[rows["eps_train"] == 0].drop(columns="eps_train")
    beside = rows[rows["eps_train"] > 0].merge(plain, on=["norm", "samples", "seed"], suffixes=("", "_standard"))
    return beside.assign(gain=beside["accuracy"] - beside["accuracy_standard"])


def _crossings(rows: pd.DataFrame) -> pd.DataFrame:
    """Per norm and radius the size at which robust training stops helping, its interval, and the seeds that have one."""
    import pandas as pd

    from robustfeatures.experiments.sweeps import crossing, interval_of_logarithms

    found = []
    for (norm, eps), part in _gains(rows).groupby(["norm", "eps_train"], sort=False):
        per_seed = [
            crossing(list(of_seed["samples"]), list(of_seed["gain"]))
            for _, of_seed in part.sort_values("samples").groupby("seed")
        ]
        middle, low, high = interval_of_logarithms(per_seed)
        found.append(
            {
                "norm": norm,
                "eps_train": eps,
                "crossing": round(middle, 1),
                "crossing_low": round(low, 1),
                "crossing_high": round(high, 1),
                "crossing_seeds": int(pd.Series(per_seed).notna().sum()),
            }
        )
    return pd.DataFrame(found)


def table(results: Results) -> pd.DataFrame:
    """One line per norm, radius and size; `crossing`, the size at which the radius stops helping, in each of them."""
    from robustfeatures.experiments.summaries import over_seeds, with_published

    rows = _measured(results)
    by = ["norm", "eps_train", "samples"]
    summary = with_published(over_seeds(rows, by), results, by)
    return summary.merge(_crossings(rows), on=["norm", "eps_train"], how="left")


def figure(results: Results) -> Figure:
    """A line per radius over a logarithmic axis of sizes, as in Figures 1 and 6; crossings at the bottom."""
    from robustfeatures.experiments.sweeps import lines

    rows = _measured(results)
    return lines(
        rows,
        x="samples",
        line="eps_train",
        xlabel="training images",
        logarithmic=True,
        crossings=_crossings(rows),
    )


def claims(results: Results) -> list[Claim]:
    """What Section 2 says of these lines, averaged over the radii of each norm."""
    from robustfeatures.experiments.claims import Claim

    gains = _gains(_measured(results))
    found = []
    for norm in gains["norm"].unique():
        mean = gains[gains["norm"] == norm].groupby(["samples", "seed"])["gain"].mean().unstack("samples")
        fewest, most = mean.columns.min(), mean.columns.max()
        found += [
            Claim(
                f"With few training images {norm} adversarial training raises accuracy on clean images",
                f"{PAPER}, Section 2 and Figures 1 and 6",
                f"accuracy: adversarial minus standard on {fewest} images, mean over eps_train",
                list(mean[fewest]),
            ),
            Claim(
                f"With all training images {norm} adversarial training lowers accuracy on clean images",
                f"{PAPER}, Section 2 and Figures 1 and 6",
                f"accuracy: standard minus adversarial on {most} images, mean over eps_train",
                list(-mean[most]),
            ),
            Claim(
                f"The gain from {norm} adversarial training shrinks as training images are added",
                f"{PAPER}, Section 2",
                f"gain on {fewest} minus gain on {most} images, mean over eps_train",
                list(mean[fewest] - mean[most]),
            ),
        ]
    return found


EXPERIMENT = Experiment(
    id="C1",
    title="Accuracy against the size of the training set",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy on clean test images against the number of training images, one line per radius of training (0 is "
        "standard). Lines are means over seeds, each with training images of its own, bands standard deviations. Bars at "
        "the bottom: where the gain over standard training ends, with its 95 % interval over the seeds in which it does."
    ),
)
