"""How near inversions come to the representation that they seek, against their steps.

`python -m tests.benchmarks.inversion results/artifacts/model/<source>.json results/artifacts/data/<data>.json` prints
the distance that is left, as a share of that at the start. From it the steps of D_R and D_NR are chosen. It also prints
how much the light varies, of the inversions and of their targets. With `--learner` it prints how many of the inversions
another network classifies as their targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from robustfeatures import load_model, open_dataset
from robustfeatures.attacks.inversion import invert
from robustfeatures.data.settings import Split
from robustfeatures.derived.inversion import NOISE_DEVIATION, draw_noise, draw_start_rows
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.experiments.shared.units import percent
from robustfeatures.models.network import Network
from robustfeatures.training.accuracy import accuracy

BATCH = 250
QUANTILES = (0.1, 0.5, 0.9)


def inverted(
    network: Network,
    start: Tensor,
    targets: Tensor,
    *,
    step_size: float,
    steps: Sequence[int],
    precision: Precision = "float32",
) -> Iterator[Tensor]:
    """The images (N, C, H, W) after each number of steps, which are in ascending order."""
    frozen, images, done = FrozenNetwork(network, precision=precision), start, 0
    for count in steps:
        # The path of an image does not depend on where it is interrupted.
        images = invert(frozen, images, targets, step_size=step_size, steps=count - done)
        done = count
        yield images


@torch.no_grad()
def share_left(network: Network, start: Tensor, images: Tensor, targets: Tensor) -> Tensor:
    """The distance of each image from its target (N,), as a share of that at the start; in float32."""
    sought = network.representation(targets)
    left, first = ((network.representation(each) - sought).norm(dim=1) for each in (images, start))
    return left / first


def light(images: Tensor) -> dict[str, float]:
    """How much the light of `images` (N, C, H, W) varies: within an image, and from the mean of one to that of another.

    Both are standard deviations, in the mean over the channels, and the first over the images.
    """
    within, means = images.std(dim=(2, 3)).mean(), images.mean(dim=(2, 3)).std(dim=0).mean()
    return {"sd within images": within.item(), "sd of their means": means.item()}


def main(
    model: Annotated[Path, typer.Argument(help="The reference of the source network.")],
    data: Annotated[Path, typer.Argument(help="The reference of its data set.")],
    start: Literal["images", "noise"] = "images",
    split: Split = "train",
    learner: Annotated[Path | None, typer.Option(help="The reference of a network that classifies them.")] = None,
    noise_deviation: Annotated[float, typer.Option(help="Of the noise, if the start is noise.")] = NOISE_DEVIATION,
    step_size: float = 0.1,
    steps: Annotated[str, typer.Option(help="Numbers of steps, ascending.")] = "10,20,50,100,200,500",
    images: Annotated[int, typer.Option(help="Drawn from the split with a fixed seed.")] = 1000,
    precision: Precision = "float32",
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    store: Path | None = None,
) -> None:
    """Print the share of the distance that is left, how much the light varies, and the accuracy of a learner."""
    torch.set_num_threads(threads)
    network = load_model(model, store=store, device=device)
    original = open_dataset(data, split, store=store)
    rows = np.sort(np.random.default_rng(0).permutation(len(original))[:images])
    if start == "noise":
        began = draw_noise(original.provenance["source_index"][rows], original.image_shape, 0, noise_deviation)
    else:
        began = original.float_images(draw_start_rows(original, 0)[rows])
    counts = [int(each) for each in steps.split(",")]
    second = None if learner is None else load_model(learner, store=store, device=device)
    begin, targets = (torch.from_numpy(each).to(device) for each in (began, original.float_images(rows)))
    left: dict[int, list[Tensor]] = {count: [] for count in counts}
    made: dict[int, list[Tensor]] = {count: [] for count in counts}
    for first, sought in zip(begin.split(BATCH), targets.split(BATCH), strict=True):
        paths = inverted(network, first, sought, step_size=step_size, steps=counts, precision=precision)
        for count, there in zip(counts, paths, strict=True):
            left[count].append(share_left(network, first, there, sought))
            made[count].append(there)
    labels = torch.from_numpy(original.labels[rows]).to(device)
    lines = []
    for count in counts:
        shares, found = torch.cat(left[count]), torch.cat(made[count])
        line = {"steps": count, "mean": shares.mean().item()}
        line |= {f"{quantile:.0%}": shares.quantile(quantile).item() for quantile in QUANTILES}
        line |= light(found)
        if second is not None:
            line["accuracy (%)"] = percent(accuracy(second, InMemory(found), labels))
        lines.append(line)
    began_at = f"noise of {noise_deviation:g}" if start == "noise" else start
    typer.echo(f"{model.stem}, {began_at}, {len(rows)} images, step {step_size:g}, {precision}\n")
    typer.echo(pd.DataFrame(lines).round(3).to_markdown(index=False))
    typer.echo("\ntargets: " + ", ".join(f"{name} {value:.3f}" for name, value in light(targets).items()))


if __name__ == "__main__":
    typer.run(main)
