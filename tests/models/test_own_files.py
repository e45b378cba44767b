"""Files of one's own with a function that makes a network: what is refused, and what the function gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.own_files import OwnFactory, check_own

SHAPE = (3, 16, 16)
FILE = "from torch import nn\n\ndef net(*, num_classes, image_shape, width=4):\n    {}\n"


def declared(folder: Path, body: str) -> None:
    (folder / "mine.py").write_text(FILE.format(body))
    check_own(OwnFactory("mine.py", "net"), folder, "architecture.name")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('no\\nluck')", "mine.py:net raises ValueError: no$"),
        ("return 3", "mine.py:net returns int, not a torch.nn.Module"),
        ("return nn.Flatten(), nn.Flatten()", "mine.py:net returns Flatten in place of the name of a layer"),
        ("return nn.Linear(3, depth)", "mine.py:net raises NameError: name 'depth' is not defined"),
        ("pass\n\nimport nothing_of_this_name", r"mine.py raises ModuleNotFoundError: No module named"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, body: str, problem: str) -> None:
    declared(tmp_path, body)
    with pytest.raises(UserError, match=f"^architecture: .*{problem}"):
        create("mine.py:net", num_classes=10, image_shape=SHAPE)


def test_the_function_gets_the_width(tmp_path: Path) -> None:
    body = "return nn.Sequential(nn.Flatten(), nn.Linear(768, width), nn.ReLU(), nn.Linear(width, num_classes)), '2'"
    declared(tmp_path, body)
    for width, components in ((None, 4), (9, 9)):
        network = create("mine.py:net", num_classes=10, image_shape=SHAPE, width=width)
        assert network.representation(torch.rand(4, *SHAPE)).shape == (4, components)


def test_a_file_that_was_not_declared() -> None:
    with pytest.raises(
        UserError, match=r"absent\.py is not known here; give architecture='<folder>/absent\.py:<function>'"
    ):
        create("absent.py:net", num_classes=10, image_shape=SHAPE)
