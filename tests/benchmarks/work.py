"""The compared work: each function returns the seconds of each implementation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import foolbox
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.attacks import invert, pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.settings import Data
from robustfeatures.engine.batches import InMemory, choose_batch_size
from robustfeatures.engine.fast_path import set_fast_path
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.precision import autocast
from robustfeatures.engine.settings import Precision
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.benchmarks import plain
from tests.benchmarks.timing import side_by_side

EPS, STEP_SIZE = 0.5, 0.1
# The usual batch size, for the other implementations on a processor.
OTHERS_BLOCK = 128


class AsOurs(nn.Module):
    """A network in the layout and the precision in which ours computes."""

    def __init__(self, network: Network, precision: Precision) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in its stub
        self.precision = precision

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float32."""
        with autocast(images.device, self.precision):
            logits: Tensor = self.network(images.contiguous(memory_format=torch.channels_last))
        return logits.float()

    def representation(self, images: Tensor) -> Tensor:
        """g(x), float32."""
        with autocast(images.device, self.precision):
            found: Tensor = self.network.representation(images.contiguous(memory_format=torch.channels_last))
        return found.float()


@dataclass(frozen=True)
class Setting:
    """The device and data of a benchmark: images float32 (N, C, H, W) in [0, 1] and labels, on the device."""

    device: torch.device
    precision: Precision
    images: Tensor
    labels: Tensor

    def network(self, architecture: str, width: int | None = None) -> Network:
        """A fresh network for the images, always the same."""
        torch.manual_seed(0)
        shape = (self.images.shape[1], self.images.shape[2], self.images.shape[3])
        network = create(architecture, num_classes=10, image_shape=shape, width=width)
        network.set_normalisation(self.images.mean((0, 2, 3)).cpu(), self.images.std((0, 2, 3)).cpu())
        return network.to(self.device).eval()

    def network_of_others(self, architecture: str, width: int | None = None) -> Network | AsOurs:
        """The same network for the other implementations: on a GPU with all that is set for ours, else as it is."""
        network = self.network(architecture, width)
        return AsOurs(network, self.precision).eval() if self.device.type == "cuda" else network

    @property
    def batch_size(self) -> int:
        """Of our attacks."""
        return choose_batch_size(self.device, self.images.shape[1:])

    @property
    def batch_size_of_others(self) -> int:
        """Of the attacks of other implementations: on a GPU that of ours."""
        return self.batch_size if self.device.type == "cuda" else OTHERS_BLOCK


def load_setting(
    data: Data | None, count: int, device: torch.device, precision: Precision, raw: Path, split: str = "train"
) -> Setting:
    """`count` images of a split, drawn with a fixed seed; without `data`, random images as large as CIFAR-10's."""
    if data is None:
        torch.manual_seed(0)
        labels = torch.arange(count) % 10
        return Setting(device, precision, torch.rand(count, 3, 32, 32).to(device), labels.to(device))
    part = prepare_splits(data, raw)[split]
    rows = np.random.default_rng(0).permutation(len(part.labels))[:count]
    images = torch.from_numpy(part.images[rows]).float() / 255
    return Setting(device, precision, images.to(device), torch.from_numpy(part.labels[rows]).to(device))


def attack_in_blocks(setting: Setting, attack: Callable[[Tensor, Tensor], object], size: int) -> None:
    """Attack all images, `size` at a time, towards the next class."""
    goal = (setting.labels + 1) % 10
    for images, labels in zip(torch.split(setting.images, size), torch.split(goal, size), strict=True):
        attack(images, labels)


def build_attack(model: nn.Module, steps: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Targeted PGD as the stages run it."""
    return lambda images, goal: pgd(
        model, images, goal, norm="l2", eps=EPS, step_size=STEP_SIZE, steps=steps, targeted=True
    )


def targeted_attack(setting: Setting, architecture: str, steps: int, rounds: int) -> dict[str, float]:
    """Targeted L2 PGD with foolbox, with a plain loop, and ours."""
    network = setting.network_of_others(architecture)
    library = foolbox.attacks.L2ProjectedGradientDescentAttack(abs_stepsize=STEP_SIZE, steps=steps, random_start=False)
    wrapped = foolbox.PyTorchModel(network, bounds=(0, 1), device=setting.device)
    frozen_network = FrozenNetwork(setting.network(architecture), precision=setting.precision)
    size = setting.batch_size_of_others

    def by_library(images: Tensor, goal: Tensor) -> None:
        library(wrapped, images, foolbox.criteria.TargetedMisclassification(goal), epsilons=EPS)

    def by_loop(images: Tensor, goal: Tensor) -> None:
        plain.targeted_pgd(network, images, goal, eps=EPS, step_size=STEP_SIZE, steps=steps)

    return side_by_side(
        {
            "foolbox": lambda: attack_in_blocks(setting, by_library, size),
            "plain": lambda: attack_in_blocks(setting, by_loop, size),
            "ours": lambda: attack_in_blocks(setting, build_attack(frozen_network, steps), setting.batch_size),
        },
        setting.device,
        rounds,
    )


def with_fast_path(do: Callable[[], None]) -> None:
    """Do something on the fast path of GPUs."""
    set_fast_path(True)
    try:
        do()
    finally:
        set_fast_path(False)


def compilation(setting: Setting, architecture: str, steps: int, rounds: int) -> dict[str, float]:
    """Some steps of the attack on one block of images: eager, compiled by torch, and on a GPU as a CUDA graph."""
    block = setting.batch_size
    few = replace(setting, images=setting.images[:block], labels=setting.labels[:block])
    network = setting.network(architecture)
    eager, compiled = (FrozenNetwork(network, precision=setting.precision, compile=each) for each in (False, True))

    def attack(frozen_network: FrozenNetwork) -> None:
        attack_in_blocks(few, build_attack(frozen_network, steps), block)

    ways = {"ours": lambda: attack(eager), "compile: true": lambda: attack(compiled)}
    if setting.device.type == "cuda":
        ways["gpu_fast_path: true"] = lambda: with_fast_path(lambda: attack(eager))
    return side_by_side(ways, setting.device, rounds)


def inversion(
    setting: Setting, architecture: str, steps: int, rounds: int, width: int | None = None
) -> dict[str, float]:
    """Inversion of the representation from other images."""
    network = setting.network_of_others(architecture, width)
    frozen_network = FrozenNetwork(setting.network(architecture, width), precision=setting.precision)
    start = setting.images.flip(0)
    with torch.no_grad():
        goal = network.representation(setting.images)

    def distance(images: Tensor) -> Tensor:
        return (network.representation(images) - goal).norm(dim=1).sum()

    def ours() -> None:
        size = setting.batch_size
        for begin, images in zip(torch.split(start, size), torch.split(setting.images, size), strict=True):
            invert(frozen_network, begin, images, step_size=STEP_SIZE, steps=steps)

    return side_by_side(
        {"plain": lambda: plain.l2_ascent(network, start, distance, step_size=STEP_SIZE, steps=steps), "ours": ours},
        setting.device,
        rounds,
    )


def training(
    setting: Setting,
    architecture: str,
    rounds: int,
    *,
    adversary: Adversary | None,
    size: int,
    width: int | None = None,
) -> dict[str, float]:
    """One epoch of standard or adversarial training."""
    settings = Training(epochs=1, batch_size=size, learning_rate=0.01, weight_decay=5e-4, schedule="constant")
    ours, theirs = setting.network(architecture, width), setting.network_of_others(architecture, width)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    perturbation = Attacker(ours, adversary, setting.precision) if adversary else None

    def perturb(images: Tensor, labels: Tensor) -> Tensor:
        assert adversary is not None
        return plain.l2_ascent(
            theirs,
            images,
            lambda x: -functional.cross_entropy(theirs(x), labels),
            step_size=adversary.step_size,
            steps=adversary.steps,
            origin=images,
            eps=adversary.eps,
        )

    def run() -> None:
        train(
            ours,
            InMemory(setting.images),
            setting.labels,
            settings,
            seed=0,
            precision=setting.precision,
            perturbation=perturbation,
        )

    return side_by_side(
        {
            "plain": lambda: plain.train_epoch(
                theirs, optimiser, setting.images, setting.labels, size, perturb if adversary else None
            ),
            "ours": run,
        },
        setting.device,
        rounds,
    )


def streaming(shape: tuple[int, int, int, int], size: int, rounds: int) -> dict[str, float]:
    """Reading all images (N, C, H, W) once in batches of `size`: from zarr, and from a memory map of the same bytes."""
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(0))
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, shape, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.zarr"
        write_dataset(path, {"train": ImageDataset(images, np.zeros(shape[0], np.int64), {}, ("a",))})
        images.tofile(Path(folder) / "images.raw")
        mapped = np.memmap(Path(folder) / "images.raw", np.uint8, "r", shape=shape)
        del images
        stored = read_dataset(path, "train", in_memory=False).images

        def read(source: np.ndarray, order: Tensor) -> int:
            return sum(int(source[rows.numpy()][0, 0, 0, 0]) for rows in torch.split(order, size))

        in_order = torch.arange(shape[0])
        return side_by_side(
            {
                "map, in order": lambda: read(mapped, in_order),
                "zarr, in order": lambda: read(stored, in_order),  # type: ignore[arg-type]
                "map, shuffled": lambda: read(mapped, order),
                "zarr, shuffled": lambda: read(stored, order),  # type: ignore[arg-type]
            },
            torch.device("cpu"),
            rounds,
        )


def count_operations(network: Network, images: Tensor) -> int:
    """Floating-point operations of one forward pass and of its input gradient, which takes as many again."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(images)
    return 2 * int(counter.get_total_flops())
