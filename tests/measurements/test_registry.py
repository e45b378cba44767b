"""The work that measurements are taken to do, against the operations that torch counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.settings import Data
from robustfeatures.measurements import transfer, two_sides
from robustfeatures.models import create
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.estimates import estimate, forward_operations
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.settings import Model
from tests.pipeline.plan.test_estimates import IMAGES, SHAPE, TRAINING, count_forwards
from tests.runs import MemoryRun

ATTACK: dict[str, Any] = {"norm": "l2", "steps": 3, "precision": "float32"}
SIDES: dict[str, Any] = {"eps": [0.0, 0.1, 0.2], "relative_step_size": 0.1}
TRANSFER: dict[str, Any] = {"split": "test", "eps": 0.1, "step_size": 0.1}


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (two_sides, {**SIDES, "sides": [["a"], ["b"]]}),
        (two_sides, {**SIDES, "sides": [["a", "b"], ["c"]]}),
        (transfer, {**TRANSFER, "targets": {"one": "target-one"}}),
        (transfer, {**TRANSFER, "targets": {"one": "target-one", "two": "target-two"}}),
    ],
)
def test_a_measurement_does_the_work_that_is_estimated(module: Any, settings: dict[str, Any]) -> None:
    settings = {**ATTACK, **settings}
    inputs = inputs_of(settings)
    done = count_forwards(inputs["model"], SHAPE, lambda: module.measure(MemoryRun(inputs), **settings))
    name = module.__name__.removeprefix("robustfeatures.")
    data = Recipe("data", Data(source="digits", validation=0.1, test=0.1), {})
    architecture = Architecture(name="small-cnn")
    model = Recipe("model", Model(architecture=architecture, training=TRAINING, seed=0), {"data": data})
    role = "source" if module is transfer else "model"
    found = estimate(Recipe("measured", Measurement(module=name, settings=settings), {role: model, "data": data}))
    size = original_data_size(data)
    assert size is not None
    estimated = found.operations / forward_operations(architecture, SHAPE) / size.images["test"]
    assert done / IMAGES == pytest.approx(estimated)
    assert found.other_seconds > 0


def inputs_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Images of class 0, and networks that predict this class whatever they see."""
    class_names = tuple(name for side in settings.get("sides", [["a", "b", "c"]]) for name in side)
    images = np.random.default_rng(0).random((IMAGES, *SHAPE), np.float32)
    data = ImageDataset(images, np.zeros(IMAGES, np.int64), {"source_index": np.arange(IMAGES)}, class_names)
    torch.manual_seed(0)
    network = create("small-cnn", num_classes=len(class_names), image_shape=SHAPE).eval()
    with torch.no_grad():
        network.head.bias[0] += 1000.0
    roles = ("model", "source", *settings.get("targets", {}).values())
    return {"data": {"test": data}, **dict.fromkeys(roles, network)}
