"""Fractions, names and numbers in YAML."""

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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {k: 1, k: 2}", "line 1: 'k' appears twice"),
        ("x: 1\ny: 2\nx: 3\n", "line 3: 'x' appears twice"),
        ("x: 1\na: {yes: [1]}", "line 2: YAML reads the name yes as another value; write 'yes'"),
        ("path: {{folder}}", "line 1: found unhashable key"),
        ("a: {[1, 2]: b}", "line 1: found unhashable key"),
        ("a: {010: b}", "line 1: YAML reads the name 010 as another value; write '010'"),
        ("a: {2020-01-01: b}", "line 1: YAML reads the name 2020-01-01 as another value; write '2020-01-01'"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)
    assert str(refused.value) == f"{tmp_path / 'some.yaml'}: {problem}"


def test_names_that_are_taken(tmp_path: Path) -> None:
    assert read(tmp_path, "{'yes': 1, 0: 2, 0.25: 3, -1: 4, \"010\": 5}") == {"yes": 1, 0: 2, 0.25: 3, -1: 4, "010": 5}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x: 1\nseeds: [0, 010]", "line 2: seeds.1: YAML reads 010 as 8; write 8, or '010' if it is text"),
        ("a: {b: 0x10}", "line 1: a.b: YAML reads 0x10 as 16; write 16, or '0x10' if it is text"),
        ("a: -0b11", "line 1: a: YAML reads -0b11 as -3; write -3, or '-0b11' if it is text"),
        ("a: 1:0", "line 1: a: YAML reads 1:0 as 60; write 60, or '1:0' if it is text"),
        ("010", "line 1: YAML reads 010 as 8; write 8, or '010' if it is text"),
        ("a: 1234567890123456789", "line 1: a: an integer of more than 18 digits"),
        (f"x: 1\na: {{b: 1{'0' * 400}}}", "line 2: a.b: an integer of more than 18 digits"),
        (f"a: 1{'0' * 400}/3", "line 1: an integer of more than 18 digits here"),
        ("a: 0x_", "line 1: a: 0x_ is no number; write '0x_' if it is text"),
        ("a: 1:30.5", "line 1: a: YAML reads 1:30.5 as 90.5; write 90.5, or '1:30.5' if it is text"),
    ],
)
def test_numbers_that_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)
    assert str(refused.value) == f"{tmp_path / 'some.yaml'}: {problem}"


def test_numbers_that_are_taken(tmp_path: Path) -> None:
    text = "[0, -1, +2, 10, 1_000, 0.5, 00.5, 5e-4, 1e3, '010', '1:0', 8/255]"
    assert read(tmp_path, text) == [0, -1, 2, 10, 1000, 0.5, 0.5, 5e-4, 1e3, "010", "1:0", 8 / 255]


def test_a_merge_that_overrides_may_be_merged_again(tmp_path: Path) -> None:
    text = """
a: &a {k: 1, z: 1}
o:
  p:
    q: &b
      <<: *a
      k: 2
r:
  <<: *b
  z: 3
"""
    found = read(tmp_path, text)
    assert found == {"a": {"k": 1, "z": 1}, "o": {"p": {"q": {"k": 2, "z": 1}}}, "r": {"k": 2, "z": 3}}


def test_the_radius_of_cifar10_is_eight_of_255() -> None:
    """8/255 and 2/255 as float64."""
    study = read_study(REPOSITORY / "workflow" / "studies" / "feature-learning-cifar10.yaml")
    adversary = study.training["adversarial"].adversary
    assert adversary is not None
    assert (adversary.eps, adversary.step_size) == (0.03137254901960784, 0.00784313725490196)


@pytest.mark.parametrize("text", ["!!bool maybe", "!!timestamp x", '!!int ""'])
def test_a_tag_that_does_not_fit_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"some\.yaml: a value is not of the kind that its tag \(!!\) names$"):
        read(tmp_path, f"a: {text}")


def test_half_a_character_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"some\.yaml: line 2: a\.b: a text that is not UTF-8$"):
        read(tmp_path, 'x: 1\na: {b: "\\uD800"}')
