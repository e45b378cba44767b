"""C1: accuracy on clean images against the number of training images, for several radii of training.

at-odds-2019, Section 2, Figures 1 (L2) and 6 (Linf). Also the transfer of adversarial examples between standard
networks trained on independent samples (Section 2.2), which the paper derives from its theory and does not measure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.attacks.evaluating.settings import Noise
from robustfeatures.attacks.settings import NormName
from robustfeatures.data.settings import Subset
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import (
    NORM_NAMES,
    PAPER,
    AdversarialTrainings,
    RadiiPerNorm,
    make_network,
    make_training,
    round_eps,
    training_name,
)
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Section 2 and Figures 1 and 6"
# Placeholder for the size of the whole training set, which is unknown while planning.
WHOLE = 0
# The row of the transfer between independent samples; its two networks never share an initialisation.
TRANSFER = "transfer"
OTHER_SEED = 2000


@dataclass(frozen=True, kw_only=True)
class Size(Strict):
    """A number of training images and of epochs; milestones of the training scale with the epochs."""

    samples: PositiveInt
    """The number of training images."""
    epochs: PositiveInt
    """The number of epochs."""


@dataclass(frozen=True, kw_only=True)
class Transfer(Size):
    """Two standard networks: one is trained on `samples` training images, the other on all other training images.

    Adversarial examples of the first, of this norm and radius, are shown to the second. PGD takes as many steps, of as
    large a share of the radius, as in adversarial training.
    """

    norm: NormName
    """The norm of the adversarial examples."""
    eps: PositiveFloat
    """The radius of the adversarial examples."""


@dataclass(frozen=True, kw_only=True)
class Settings(AdversarialTrainings):
    """Training radii per norm, and training set sizes; the whole training set is always included."""

    eps: RadiiPerNorm
    """The training radii of each norm."""
    sizes: Annotated[tuple[Size, ...], MinLen(1)]
    """The sizes of the training set, beside the whole set."""
    transfer: Transfer | None = None
    """The transfer of examples between two networks; not measured if it is not given."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """D, and one evaluation per norm, radius, size and seed; those of radius 0 are the same in both norms.

    With `transfer` also a measurement and an evaluation per seed.

    Raises:
        UserError: a number of images appears twice.
    """
    for place, size in enumerate(settings.sizes):
        if size.samples in [each.samples for each in settings.sizes[:place]]:
            raise UserError(f"experiments.C1.sizes: {size.samples} samples appear twice")
    found = [Need("D", pieces.study.seeds[0], pieces.data())]
    for seed in pieces.study.seeds:
        if settings.transfer is not None:
            found += _needs_of_transfer(pieces, settings, settings.transfer, seed)
        for norm, radii in settings.eps.items():
            for eps in (0.0, *sorted(radii)):
                columns: dict[str, str | int | float] = {"norm": NORM_NAMES[norm], "eps_train": round_eps(eps)}
                row = f"{norm} {training_name(norm, eps)}"
                whole = make_network(pieces, settings, seed, norm, eps)
                found.append(Need(row, seed, pieces.clean_evaluation(whole), {**columns, "samples": WHOLE}))
                for size in settings.sizes:
                    model = _model_on_fewer(pieces, settings, seed, norm, eps, size)
                    sized = {**columns, "samples": size.samples}
                    found.append(Need(f"{row} on {size.samples}", seed, pieces.clean_evaluation(model), sized))
    return found


def _model_on_fewer(
    pieces: Pieces, settings: Settings, seed: int, norm: NormName, eps: float, size: Size, *, rest: bool = False
) -> Recipe:
    """The network trained on `size.samples` images, or with `rest` on all others, from another initialisation."""
    chosen = make_training(pieces, settings, norm, eps)
    milestones = (max(1, round(epoch * size.epochs / chosen.epochs)) for epoch in chosen.milestones)
    stretched = replace(chosen, epochs=size.epochs, milestones=tuple(milestones))
    # Each seed draws its own images, so the band over seeds includes the choice of images.
    drawn = Subset(kind="subset", split="train", samples=size.samples, seed=seed, rest=rest)
    images = f"all-but-{size.samples}" if rest else f"{size.samples}"
    data = pieces.data_with(f"{images}-seed{seed}", [drawn])
    label = f"{pieces.data().label}-{images}-{settings.training}-against-{training_name(norm, eps)}"
    other = OTHER_SEED if rest else 0
    return pieces.model(label, stretched, seed, {"data": data}, seed_offset=other)


def _needs_of_transfer(pieces: Pieces, settings: Settings, transfer: Transfer, seed: int) -> list[Need]:
    """The transfer from one network to the other, and the accuracy of the other under noise of the same radius."""
    first, second = (
        _model_on_fewer(pieces, settings, seed, transfer.norm, 0.0, transfer, rest=rest) for rest in (False, True)
    )
    attack = {
        "norm": transfer.norm,
        "eps": transfer.eps,
        "step_size": settings.relative_step_size * transfer.eps,
        "steps": settings.steps,
    }
    measurement = pieces.measurement(
        f"{first.family}-transfer",
        "measurements.transfer",
        {"targets": {"second": "target"}, "split": "test", "precision": pieces.study.precision, **attack},
        {"data": pieces.data(), "source": first, "target": second},
        seed=seed,
    )
    noise = pieces.evaluation(
        second,
        eps=(0.0, transfer.eps),
        norm=transfer.norm,
        attacks=[Noise(kind="noise", draws=1)],
        where="experiments.C1.transfer",
    )
    return [Need(TRANSFER, seed, measurement), Need(TRANSFER, seed, noise)]


def _count_training_images(results: Results) -> pd.DataFrame:
    """The evaluations, with the number of training images in `samples`."""
    from robustfeatures.pipeline.store.datasets import read_dataset

    (original,) = results.payloads.values()
    whole = len(read_dataset(original, "train", in_memory=False))
    rows = results.evaluations[results.evaluations["row"] != TRANSFER]
    # Rows of the transfer have no number, so that pandas holds the others as floats.
    samples = rows["samples"].replace(WHOLE, whole).astype(int)
    return rows.assign(samples=samples).sort_values("samples", kind="stable")


def _compute_gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Per norm, radius above 0, size and seed: accuracy minus that of standard training, in `gain`."""
    wide = rows.pivot_table(index=["norm", "samples", "seed"], columns="eps_train", values="accuracy")
    gains = wide.drop(columns=0.0).sub(wide[0.0], axis=0)
    return gains.reset_index().melt(["norm", "samples", "seed"], value_name="gain")


def _find_crossings(rows: pd.DataFrame) -> pd.DataFrame:
    """Per norm and radius the size at which robust training stops helping, if it does in every seed, with its interval.

    `crossing_seeds` counts the seeds in which it does.
    """
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
    rows = _count_training_images(results)
    by = ["norm", "eps_train", "samples"]
    summary = summarise_seeds(rows.sort_values(by), by)
    return add_published(summary, results, by).merge(_find_crossings(rows), on=["norm", "eps_train"], how="left")


def figure(results: Results) -> Figure:
    """A line per radius over a logarithmic axis of sizes, as in Figures 1 and 6; crossings below."""
    from robustfeatures.experiments.shared.sweeps import plot_panels

    rows = _count_training_images(results)
    return plot_panels(
        rows,
        x="samples",
        xlabel="training images",
        line="eps_train",
        line_label=lambda eps: f"eps {eps:g}" if eps > 0 else "standard",
        log_x=True,
        crossings=_find_crossings(rows),
    )


def _compute_transfer(results: Results) -> pd.DataFrame:
    """By seed, in percent of the images that were right: those that the transferred examples change, and the noise.

    An image that does not fool its own network counts as not transferred: those that do fool it are easier to change.
    """
    import pandas as pd

    counts = results.measurements[results.measurements["attack"] == "untargeted"].set_index("seed")
    evaluated = results.evaluations[results.evaluations["row"] == TRANSFER]
    under_noise = evaluated.pivot_table(index="seed", columns="eps", values="accuracy")
    return pd.DataFrame(
        {
            "transferred": percent(counts["transferred"] / counts["both_right"].where(counts["both_right"] > 0)),
            "noise": percent(1 - under_noise[results.settings.transfer.eps] / under_noise[0.0]),
        }
    )


def measured_claims(results: Results) -> list[Claim]:
    """The claim of Section 2.2: adversarial examples of one network change the predictions of the other."""
    transfer = results.settings.transfer
    if transfer is None:
        return []
    found = _compute_transfer(results)
    budget = f"{NORM_NAMES[transfer.norm]} {transfer.eps:g}"
    return [
        Claim(
            "Adversarial examples transfer between classifiers trained on independent samples",
            f"{PAPER}, Section 2.2",
            f"change of prediction (%), {budget}: by examples of the other network minus by random noise",
            found["transferred"] - found["noise"],
        )
    ]


def claims(results: Results) -> list[Claim]:
    """The claims of Section 2 on these lines, averaged over the radii of each norm."""
    rows = _count_training_images(results)
    gains = _compute_gains(rows)
    found = []
    for norm in gains["norm"].unique():
        mean = gains[gains["norm"] == norm].groupby(["samples", "seed"])["gain"].mean().unstack("samples")
        fewest, most = mean.columns.min(), mean.columns.max()
        on_few = keep_learned(mean[fewest], rows, norm=norm, samples=fewest)
        on_all = keep_learned(mean[most], rows, norm=norm, samples=most)
        found += [
            Claim(
                "With few training images adversarial training raises accuracy on clean images (in certain cases, "
                "particularly on MNIST)",
                SOURCE,
                f"accuracy: adversarial minus standard on {fewest} images, mean over eps_train",
                on_few,
                setting=norm,
            ),
            Claim(
                "With all training images adversarial training lowers accuracy on clean images",
                SOURCE,
                f"accuracy: standard minus adversarial on {most} images, mean over eps_train",
                -on_all,
                setting=norm,
            ),
            Claim(
                "The gain from adversarial training shrinks as training images are added",
                SOURCE,
                f"gain on {fewest} minus gain on {most} images, mean over eps_train",
                on_few - on_all,
                setting=norm,
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
    measured_claims=measured_claims,
    names={"eps_train": "training eps"},
    caption=(
        "Accuracy on clean test images against the number of training images, one line per radius (eps) of training. "
        "Lines are means over seeds, each with training images of its own, bands standard deviations. Below: the size "
        "at which the gain over standard training ends. Its bar is the 95 % interval over seeds. There is a size only "
        "if the gain ends in every seed. The axes of accuracy span at least 20 points."
    ),
)
