"""torchvision's data sets, models and transforms with the installed torch."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from robustfeatures.engine.vision import import_torchvision


def test_torchvision_works_beside_this_torch() -> None:
    code = (
        "import torch, logging, sys\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from robustfeatures.engine.vision import import_torchvision\n"
        "vision = import_torchvision()\n"
        "assert vision is import_torchvision()\n"
        "from torchvision import datasets, models, transforms\n"
        "logits = models.resnet18(weights=None).eval()(torch.rand(2, 3, 64, 64))\n"
        "flipped = transforms.RandomHorizontalFlip(p=1.0)(torch.arange(4.0).view(1, 2, 2))\n"
        "data = datasets.FakeData(size=3, image_size=(3, 8, 8), num_classes=2)\n"
        "declared = '_robustfeatures_operators' in vars(vision)\n"
        "print(declared, vision.__version__, tuple(logits.shape), flipped.flatten().tolist(), len(data))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *warnings, found = done.stdout.splitlines()
    declared, _, rest = found.split(maxsplit=2)
    assert rest == "(2, 1000) [1.0, 0.0, 3.0, 2.0] 3"
    # Once, and only where the operators had to be declared.
    assert len(warnings) == (declared == "True")
    assert all("torchvision was built for another torch" in line for line in warnings)


def test_nothing_is_declared_where_torchvision_loads_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ModuleType("torchvision")
    monkeypatch.setattr("robustfeatures.engine.vision.import_module", lambda name: whole)
    assert import_torchvision() is whole
    assert "_robustfeatures_operators" not in vars(whole)
