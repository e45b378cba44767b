"""A10: samples of the sets that inversion or a targeted attack made, below the originals, with the magnified change.

not-bugs-2019, Figures 2a, 7, 9 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.derived.settings import Inversion, TargetedAttack
from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """What the figure shows."""

    images: PositiveInt = 10
    """The number of images of each set."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The original data, and the sets of the first seed that inversion or a targeted attack made of its train split."""
    seed = pieces.study.seeds[0]
    shown = [
        name
        for name, derived in pieces.study.derived.items()
        if "train" in derived.splits and isinstance(derived.method, (Inversion, TargetedAttack))
    ]
    return [Need("D", seed, pieces.data()), *(Need(name, seed, pieces.derived(name, seed)) for name in shown)]


def figure(results: Results) -> Figure:
    """One block per set, with the first image of each class."""
    from robustfeatures.experiments.shared.plots import sample_blocks
    from robustfeatures.pipeline.store.datasets import read_dataset

    payloads = {row: path for (row, _), path in results.payloads.items()}
    original = read_dataset(payloads.pop("D"), "train", in_memory=False)
    derived = {name: read_dataset(path, "train", in_memory=False) for name, path in payloads.items()}
    return sample_blocks(original, derived, images=results.settings.images)


EXPERIMENT = Experiment(
    id="A10",
    title="Samples of every derived set",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    figure=figure,
    caption=(
        "Samples of every derived set, the same images for each set, below the originals with their classes. Sets "
        "made by an attack show the derived image with its label, and the magnified change around grey. The change is "
        "magnified by the same factor in all of these sets. Sets made by inversion show the start image, unless the "
        "start was noise, and the derived image, which keeps the label of the original."
    ),
)
