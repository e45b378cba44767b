"""C1: accuracy on clean images against the number of training images, for several radii of training.

at-odds-2019, Section 2, Figures 1 (L2) and 6 (Linf).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.attacks.settings import NormName
from robustfeatures.data.settings import Subset
from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import (
    NORM_NAMES,
    PAPER,
    TEST,
    AdversarialTrainings,
    RadiiPerNorm,
    make_network,
    make_training,
    round_eps,
    select_last_epoch,
    training_name,
)
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SOURCE = f"{PAPER}, Section 2 and Figures 1 and 6"
# Placeholder for the size of the whole training set, which is unknown while planning.
WHOLE = 0


@dataclass(frozen=True, kw_only=True)
class Size(Strict):
    """A number of training images and of epochs; milestones of the training scale with the epochs."""

    samples: PositiveInt
    epochs: PositiveInt


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Training radii per norm, and training set sizes; the whole training set is always included."""

    eps: RadiiPerNorm
    sizes: Annotated[tuple[Size, ...], MinLen(1)]


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """D, and one network per norm, radius, size and seed; those of radius 0 are the same in both norms."""
    found = [Need("D", pieces.study.seeds[0], pieces.data())]
    for seed in pieces.study.seeds:
        for norm, radii in settings.eps.items():
            for eps in (0.0, *sorted(radii)):
                columns: dict[str, str | int | float] = {"norm": NORM_NAMES[norm], "eps_train": round_eps(eps)}
                row = f"{norm} {training_name(norm, eps)}"
                whole = make_network(pieces, settings, seed, norm, eps)
                found.append(Need(row, seed, whole, {**columns, "samples": WHOLE}))
                found += [
                    Need(
                        f"{row} on {size.samples}",
                        seed,
                        _model_on_fewer(pieces, settings, seed, norm, eps, size),
                        {**columns, "samples": size.samples},
                    )
                    for size in settings.sizes
                ]
    return found


def _model_on_fewer(pieces: Pieces, settings: Settings, seed: int, norm: NormName, eps: float, size: Size) -> Recipe:
    chosen = make_training(pieces, settings, norm, eps)
    milestones = (max(1, round(epoch * size.epochs / chosen.epochs)) for epoch in chosen.milestones)
    stretched = replace(chosen, epochs=size.epochs, milestones=tuple(milestones))
    # Each seed draws its own images, so the band over seeds includes the choice of images.
    drawn = Subset(kind="subset", split="train", samples=size.samples, seed=seed)
    data = pieces.data_with(f"{size.samples}-seed{seed}", [drawn])
    label = f"{pieces.data().label}-{size.samples}-{settings.training}-against-{training_name(norm, eps)}"
    return pieces.model(label, stretched, seed, {"data": data}, probes=[TEST])


def _count_training_images(results: Results) -> pd.DataFrame:
    """The last epochs, with the number of training images in `samples`."""
    from robustfeatures.pipeline.store.datasets import read_dataset

    (original,) = results.payloads.values()
    whole = len(read_dataset(original, "train", in_memory=False))
    rows = select_last_epoch(results.histories)
    return rows.assign(samples=rows["samples"].replace(WHOLE, whole)).sort_values("samples", kind="stable")


def _compute_gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Per norm, radius above 0, size and seed: accuracy minus that of standard training, in `gain`."""
    wide = rows.pivot_table(index=["norm", "samples", "seed"], columns="eps_train", values="accuracy")
    gains = wide.drop(columns=0.0).sub(wide[0.0], axis=0)
    return gains.reset_index().melt(["norm", "samples", "seed"], value_name="gain")


def _find_crossings(rows: pd.DataFrame) -> pd.DataFrame:
    """Per norm and radius the size at which robust training stops helping, its interval, and the seeds with one."""
    import pandas as pd

    from robustfeatures.experiments.shared.sweeps import find_crossing, geometric_interval

    found = []
    for (norm, eps), part in _compute_gains(rows).groupby(["norm", "eps_train"], sort=False):
        per_seed = [find_crossing(list(each["samples"]), list(each["gain"])) for _, each in part.groupby("seed")]
        middle, low, high = (float(f"{end:.3g}") for end in geometric_interval(per_seed))
        found.append(
            {
                "norm": norm,
                "eps_train": eps,
                "crossing": middle,
                "crossing_low": low,
                "crossing_high": high,
                "crossing_seeds": int(pd.Series(per_seed).notna().sum()),
            }
        )
    return pd.DataFrame(found)


def table(results: Results) -> pd.DataFrame:
    """One line per norm, radius and size; `crossing` is the size at which the radius stops helping."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    rows = _count_training_images(results)
    by = ["norm", "eps_train", "samples"]
    summary = summarise_seeds(rows.sort_values(by), by)
    return add_published(summary, results, by).merge(_find_crossings(rows), on=["norm", "eps_train"], how="left")


def figure(results: Results) -> Figure:
    """A line per radius over a logarithmic axis of sizes, as in Figures 1 and 6; crossings at the bottom."""
    from robustfeatures.experiments.shared.sweeps import plot_panels

    rows = _count_training_images(results)
    return plot_panels(
        rows, x="samples", xlabel="training images", line="eps_train", log_x=True, crossings=_find_crossings(rows)
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 2 on these lines, averaged over the radii of each norm."""
    from robustfeatures.experiments.shared.claims import Claim

    gains = _compute_gains(_count_training_images(results))
    found = []
    for norm in gains["norm"].unique():
        mean = gains[gains["norm"] == norm].groupby(["samples", "seed"])["gain"].mean().unstack("samples")
        fewest, most = mean.columns.min(), mean.columns.max()
        found += [
            Claim(
                f"With few training images {norm} adversarial training raises accuracy on clean images",
                SOURCE,
                f"accuracy: adversarial minus standard on {fewest} images, mean over eps_train",
                list(mean[fewest]),
            ),
            Claim(
                f"With all training images {norm} adversarial training lowers accuracy on clean images",
                SOURCE,
                f"accuracy: standard minus adversarial on {most} images, mean over eps_train",
                list(-mean[most]),
            ),
            Claim(
                f"The gain from {norm} adversarial training shrinks as training images are added",
                SOURCE,
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
        "standard). Lines are means over seeds, each with training images of its own, bands standard deviations. Bars "
        "at the bottom: the size at which the gain over standard training ends, with its 95 % interval over the seeds "
        "in which it ends."
    ),
)
