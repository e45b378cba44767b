"""torchvision's data sets, models and transforms with the installed torch."""

from __future__ import annotations

import subprocess
import sys


def test_torchvision_works_beside_this_torch() -> None:
    code = (
        "import torch\n"
        "from robustfeatures.engine.vision import import_torchvision\n"
        "vision = import_torchvision()\n"
        "assert vision is import_torchvision()\n"
        "from torchvision import datasets, models, transforms\n"
        "logits = models.resnet18(weights=None).eval()(torch.rand(2, 3, 64, 64))\n"
        "flipped = transforms.RandomHorizontalFlip(p=1.0)(torch.arange(4.0).view(1, 2, 2))\n"
        "data = datasets.FakeData(size=3, image_size=(3, 8, 8), num_classes=2)\n"
        "print(vision.__version__, tuple(logits.shape), flipped.flatten().tolist(), len(data))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1)[1].strip() == "(2, 1000) [1.0, 0.0, 3.0, 2.0] 3"
