"""How fast this machine trains a network and attacks it. No recipe depends on it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from robustfeatures.engine.settings import Precision
from robustfeatures.models.own_files import declare_file
from robustfeatures.models.settings import Architecture

# Images at once: enough for the speed of larger batches, and few enough for a slow processor.
IMAGES = 64
# Shorter measurements are repeated with more work.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Speed:
    """Images a second: of weight updates, and of steps of an attack.

    `emulated`: whether the device has no units for the precision.
    """

    updates: float
    attack_steps: float
    emulated: bool = False


def measure_speed(
    architecture: Architecture, image_shape: tuple[int, int, int], precision: Precision, device: str, threads: int
) -> Speed:
    """Train a new network on random images (C, H, W), and attack it, for seconds."""
    import torch

    from robustfeatures.attacks import pgd
    from robustfeatures.engine.batches import InMemory
    from robustfeatures.engine.frozen_network import FrozenNetwork
    from robustfeatures.engine.precision import emulates
    from robustfeatures.models import create
    from robustfeatures.pipeline.run.memory import keep_freed_memory
    from robustfeatures.training.loop import train
    from robustfeatures.training.settings import Training

    keep_freed_memory()
    torch.set_num_threads(threads)
    network = create(architecture.name, num_classes=10, image_shape=image_shape, width=architecture.width).to(device)
    images = torch.rand(IMAGES, *image_shape, device=device)
    labels = torch.arange(IMAGES, device=device) % 10

    def update(times: int) -> None:
        settings = Training(epochs=times, batch_size=IMAGES, learning_rate=1e-3)
        train(network, InMemory(images), labels, settings, seed=0, precision=precision)

    def attack(times: int) -> None:
        frozen = FrozenNetwork(network, precision=precision)
        # Reading a value waits for the device.
        pgd(frozen, images, labels, norm="l2", eps=0.5, step_size=0.1, steps=times).sum().item()

    emulated = emulates(images.device, precision)
    return Speed(IMAGES * _per_second(update), IMAGES * _per_second(attack), emulated)


def _per_second(work: Callable[[int], None]) -> float:
    """How many times a second, measured after a first time; the work is done often enough to take `LEAST_SECONDS`."""
    work(1)
    times = 1
    while True:
        began = time.perf_counter()
        work(times)
        seconds = time.perf_counter() - began
        if seconds >= LEAST_SECONDS:
            return times / seconds
        times *= 2


if __name__ == "__main__":
    # A process of its own keeps torch out of Snakemake's.
    given = json.loads(sys.argv[1])
    if (own_file := given.pop("own_file")) is not None:
        declare_file(Path(own_file))
    architecture = Architecture(**given.pop("architecture"))
    print(json.dumps(asdict(measure_speed(architecture, tuple(given.pop("image_shape")), **given))))
