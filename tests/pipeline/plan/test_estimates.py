"""Estimates of jobs, compared with the true operations of networks and sizes of data sets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.registry import NETWORKS
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.estimates import estimate, forward_operations
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.study.config import Config
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"


def counted(architecture: Architecture, image_shape: tuple[int, int, int]) -> float:
    """Floating point operations of one forward of one image, by torch's own counter."""
    network = create(architecture.name, num_classes=10, image_shape=image_shape, width=architecture.width).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, *image_shape))
    return float(counter.get_total_flops())


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_operations_of_every_network(name: str) -> None:
    side = NETWORKS[name].side
    shape = (1 if side < 32 else 3, side, side)
    assert forward_operations(Architecture(name=name), shape) == pytest.approx(
        counted(Architecture(name=name), shape), rel=0.02
    )


@pytest.mark.parametrize(("width", "side"), [(8, 32), (16, 64), (64, 64)])
def test_operations_grow_with_width_and_pixels(width: int, side: int) -> None:
    architecture = Architecture(name="resnet18", width=width)
    shape = (3, side, side)
    assert forward_operations(architecture, shape) == pytest.approx(counted(architecture, shape), rel=0.1)


def test_a_study_of_large_images_asks_for_more() -> None:
    asked = {}
    for study in ("digits", "not-bugs-cifar10", "not-bugs-restricted-imagenet"):
        config = Config(study=study, device="cuda")
        tasks = make_tasks(unfold(config, STUDIES), config, gpus=1)
        models = [task for task in tasks if task.name.startswith("model/")]
        assert {task.gpu for task in models} == {1}
        assert {task.gpu for task in tasks if task.name.startswith("data/")} == {0}
        asked[study] = (max(task.minutes for task in models), max(task.memory_mb for task in models))
    digits, cifar10, imagenet = asked.values()
    assert digits < cifar10 < imagenet
    # Small digits take minutes. The papers' networks take hours, but no more than clusters allow.
    assert digits[0] < 60
    assert 60 < cifar10[0] < 3 * 24 * 60


def test_parts_share_the_time() -> None:
    whole = Config(study="not-bugs-cifar10")
    shared = Config(study="not-bugs-cifar10", derived_parts=4, evaluation_parts=2)
    plan = unfold(whole, STUDIES)
    one = {task.name: task for task in make_tasks(plan, whole, 1)}
    four = {task.name: task for task in make_tasks(plan, shared, 1)}
    assert one.keys() == four.keys()
    for name, task in one.items():
        parts = {"derived": 4, "evaluation": 2}.get(Path(name).parent.name, 1)
        assert four[name].parts == parts
        # The time to start and to read is not divided.
        assert task.minutes / parts <= four[name].minutes <= task.minutes
        estimated = estimate(plan.recipes[name])
        shared_seconds = estimated.seconds(gpu=True, threads=1, parts=parts)
        assert (shared_seconds < estimated.seconds(gpu=True, threads=1, parts=1)) == (parts > 1)


def longest(folder: Path, name: str, changes: dict[str, Any]) -> int:
    """The minutes of the longest job of the CIFAR-10 study with other data."""
    study = {**yaml.safe_load((STUDIES / "not-bugs-cifar10-fast.yaml").read_text()), **changes}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**study, "experiments": {"A1": {}}}))
    config = Config(study=name, device="cuda", seeds_per_job=1)
    return max(task.minutes for task in make_tasks(unfold(config, folder), config, gpus=1))


def test_900_small_images_ask_for_minutes(tmp_path: Path) -> None:
    """Image folders and `.npz` files are counted, so that the estimate is that of a published set of their size."""
    pixels = np.random.default_rng(0).integers(0, 256, (900, 32, 32, 3), np.uint8)
    for number, image in enumerate(pixels):
        path = tmp_path / "photographs" / str(number % 3) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    np.savez(tmp_path / "photographs.npz", images=pixels.transpose(0, 3, 1, 2), labels=np.arange(900) % 3)
    sha256 = hashlib.sha256(b"").hexdigest()
    own = {"sha256": sha256, "test": 0.2, "validation": 0.1}
    folder = longest(tmp_path, "folder", {"data": {"source": "folder", "path": str(tmp_path / "photographs"), **own}})
    npz = longest(tmp_path, "npz", {"data": {"source": "npz", "path": str(tmp_path / "photographs.npz"), **own}})
    assert folder == npz < 15
    # 60 000 images of the same size, for comparison.
    assert longest(tmp_path, "cifar10", {"data": {"source": "cifar10", "validation": 0.1}}) > 60


def test_a_network_that_the_images_do_not_fit_is_refused(tmp_path: Path) -> None:
    for changes, message in (
        (
            {"architecture": {"name": "vgg16"}},
            "architecture.name: 'vgg16' needs images of at least 32 x 32 pixels, not 8",
        ),
        ({"architecture": {"name": "linear", "width": 8}}, "architecture.width: 'linear' has no width"),
        (
            {"architecture": {"name": "densenet121", "width": 9}},
            "architecture.width: 'densenet121' takes a multiple of 2",
        ),
        (
            {"architecture": {"name": "resnet50-imagenet"}},
            "architecture.name: 'resnet50-imagenet' takes images of 3 chan",
        ),
    ):
        study = {**yaml.safe_load((STUDIES / "smoke.yaml").read_text()), **changes}
        (tmp_path / "changed.yaml").write_text(yaml.safe_dump(study))
        with pytest.raises(UserError) as refusal:
            unfold(Config(study="changed"), tmp_path)
        assert str(refusal.value).startswith(f"{tmp_path / 'changed.yaml'}: {message}")
