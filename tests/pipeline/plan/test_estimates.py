"""What jobs ask for, beside what networks and data sets really are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from robustfeatures.models import create
from robustfeatures.models.registry import ARCHITECTURES
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.estimates import OPERATIONS, SIZES, estimate, forward_operations
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.tasks import tasks_of
from robustfeatures.pipeline.study.config import Config
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"


def counted(architecture: Architecture, image_shape: tuple[int, int, int]) -> float:
    """Floating point operations of one forward of one image, by torch's own counter."""
    network = create(architecture.name, num_classes=10, image_shape=image_shape, width=architecture.width).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, *image_shape))
    return float(counter.get_total_flops())


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_operations_of_every_network(name: str) -> None:
    side = OPERATIONS[name][1]
    shape = (1 if side < 32 else 3, side, side)
    assert forward_operations(Architecture(name=name), shape) == pytest.approx(
        counted(Architecture(name=name), shape), rel=0.02
    )


@pytest.mark.parametrize(("width", "side"), [(8, 32), (16, 64), (64, 64)])
def test_operations_grow_with_width_and_pixels(width: int, side: int) -> None:
    architecture = Architecture(name="resnet18", width=width)
    shape = (3, side, side)
    assert forward_operations(architecture, shape) == pytest.approx(counted(architecture, shape), rel=0.1)


def test_sizes_of_sources() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    assert SIZES["digits"] == (len(digits.images), (1, *digits.images.shape[1:]))
    assert all(count > 0 and len(shape) == 3 for count, shape in SIZES.values())


def test_a_study_of_large_images_asks_for_more() -> None:
    asked = {}
    for study in ("digits", "not-bugs-cifar10", "not-bugs-restricted-imagenet"):
        config = Config(study=study, device="cuda")
        tasks = tasks_of(unfold(config, STUDIES), config, gpus=1)
        models = [task for task in tasks if task.name.startswith("model/")]
        assert {task.gpu for task in models} == {1}
        assert {task.gpu for task in tasks if task.name.startswith("data/")} == {0}
        asked[study] = (max(task.minutes for task in models), max(task.memory_mb for task in models))
    digits, cifar10, imagenet = asked.values()
    assert digits < cifar10 < imagenet
    # Minutes for small digits; for the papers' networks hours, but no more than clusters allow.
    assert digits[0] < 60
    assert 60 < cifar10[0] < 3 * 24 * 60


def test_parts_share_the_time() -> None:
    whole = Config(study="not-bugs-cifar10")
    shared = Config(study="not-bugs-cifar10", derived_parts=4, evaluation_parts=2)
    plan = unfold(whole, STUDIES)
    one = {task.name: task for task in tasks_of(plan, whole, 1)}
    four = {task.name: task for task in tasks_of(plan, shared, 1)}
    assert one.keys() == four.keys()
    for name, task in one.items():
        parts = {"derived": 4, "evaluation": 2}.get(Path(name).parent.name, 1)
        assert four[name].parts == parts
        # What each part has to read and to start is not divided.
        assert task.minutes / parts <= four[name].minutes <= task.minutes
        estimated = estimate(plan.recipes[name])
        shared_seconds = estimated.seconds(gpu=True, threads=1, parts=parts)
        assert (shared_seconds < estimated.seconds(gpu=True, threads=1, parts=1)) == (parts > 1)
