"""Fractions in YAML."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY


def read(tmp_path: Path, text: str) -> object:
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path)


def test_a_plain_fraction_is_the_nearest_float(tmp_path: Path) -> None:
    written = [f"{over}/255" for over in range(256)]
    assert read(tmp_path, f"eps: [{', '.join(written)}]") == {"eps": [float(Fraction(each)) for each in written]}


@pytest.mark.parametrize("text", ["'8/255'", "a/b", "8/", "/255", "8/255/2", "2026/x"])
def test_anything_else_stays_text(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"eps: {text}") == {"eps": text.strip("'")}


def test_a_division_by_zero_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, "title: t\neps: 8/0\n")
    assert str(refused.value) == f"{tmp_path / 'some.yaml'}: line 2: 8/0 divides by zero"


def test_the_radius_of_cifar10_is_eight_of_255() -> None:
    """8/255 and 2/255 as float64."""
    study = read_study(REPOSITORY / "workflow" / "studies" / "feature-learning-cifar10.yaml")
    adversary = study.training["adversarial"].adversary
    assert adversary is not None
    assert (adversary.eps, adversary.step_size) == (0.03137254901960784, 0.00784313725490196)
