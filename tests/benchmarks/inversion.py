"""How near inversions come to the representation that they seek, against their steps.

`python -m tests.benchmarks.inversion results/artifacts/model/<source>.json results/artifacts/data/<data>.json` prints
the distance that is left, as a share of that at the start. From it the steps of D_R and D_NR are chosen.
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
from robustfeatures.derived.inversion import NOISE_DEVIATION, draw_noise, draw_start_rows
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.models.network import Network

BATCH = 250
QUANTILES = (0.1, 0.5, 0.9)


def shares_left(
    network: Network,
    start: Tensor,
    targets: Tensor,
    *,
    step_size: float,
    steps: Sequence[int],
    precision: Precision = "float32",
) -> Iterator[Tensor]:
    """Per number of steps, in ascending order: the distance left of each image (N,), as a share of that at the start.

    Distances are those of `network` in float32; the steps are done in `precision`.
    """
    frozen = FrozenNetwork(network, precision=precision)

    @torch.no_grad()
    def distances(images: Tensor) -> Tensor:
        return (network.representation(images) - network.representation(targets)).norm(dim=1)

    first, images, done = distances(start), start, 0
    for count in steps:
        # The path of an image does not depend on where it is interrupted.
        images = invert(frozen, images, targets, step_size=step_size, steps=count - done)
        done = count
        yield distances(images) / first


def main(
    model: Annotated[Path, typer.Argument(help="The reference of the source network.")],
    data: Annotated[Path, typer.Argument(help="The reference of its data set.")],
    start: Literal["images", "noise"] = "images",
    noise_deviation: Annotated[float, typer.Option(help="Of the noise, if the start is noise.")] = NOISE_DEVIATION,
    step_size: float = 0.1,
    steps: Annotated[str, typer.Option(help="Numbers of steps, ascending.")] = "10,20,50,100,200,500",
    images: Annotated[int, typer.Option(help="Training images, drawn with a fixed seed.")] = 1000,
    precision: Precision = "float32",
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    store: Path | None = None,
) -> None:
    """Print the share of the distance that is left, mean and quantiles over images."""
    torch.set_num_threads(threads)
    network = load_model(model, store=store, device=device)
    original = open_dataset(data, "train", store=store)
    rows = np.sort(np.random.default_rng(0).permutation(len(original))[:images])
    if start == "noise":
        began = draw_noise(original.provenance["source_index"][rows], original.image_shape, 0, noise_deviation)
    else:
        began = original.float_images(draw_start_rows(original, 0)[rows])
    counts = [int(each) for each in steps.split(",")]
    pairs = zip(
        torch.from_numpy(began).split(BATCH), torch.from_numpy(original.float_images(rows)).split(BATCH), strict=True
    )
    batches = [
        list(
            shares_left(
                network, begin.to(device), targets.to(device), step_size=step_size, steps=counts, precision=precision
            )
        )
        for begin, targets in pairs
    ]
    lines = []
    for count, shares in zip(counts, zip(*batches, strict=True), strict=True):
        left = torch.cat(shares)
        lines.append(
            {"steps": count, "mean": left.mean().item(), **{f"{q:.0%}": left.quantile(q).item() for q in QUANTILES}}
        )
    began_at = f"noise of {noise_deviation:g}" if start == "noise" else start
    typer.echo(f"{model.stem}, {began_at}, {len(rows)} images, step {step_size:g}, {precision}\n")
    typer.echo(pd.DataFrame(lines).round(3).to_markdown(index=False))


if __name__ == "__main__":
    typer.run(main)
