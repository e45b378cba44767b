"""Errors in a study that are found before anything is computed; messages name the field."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustfeatures.data.registry import SOURCES
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY

DIGITS = {"source": "digits", "validation": 0.15, "test": 0.25}


def planned(folder: Path, changes: dict[str, Any]) -> Plan:
    """The plan of the smoke study with other values; None removes a field."""
    values = {**yaml.safe_load((REPOSITORY / "workflow/studies/smoke.yaml").read_text()), **changes}
    values = {name: value for name, value in values.items() if value is not None}
    (folder / "changed.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return unfold(Config(study="changed"), folder)


def refusal(folder: Path, changes: dict[str, Any]) -> str:
    """The error message for the changed study, without the name of its file."""
    with pytest.raises(UserError) as caught:
        planned(folder, changes)
    where = f"{folder / 'changed.yaml'}: "
    assert str(caught.value).startswith(where)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(where)


def concatenated(data: dict[str, Any]) -> dict[str, Any]:
    return {**DIGITS, "operations": [{"kind": "classes", "keep": ["1"]}, {"kind": "concatenate", "data": data}]}


def test_the_smoke_study_is_planned(tmp_path: Path) -> None:
    assert planned(tmp_path, {}).recipes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"source": "nope"}}, "data.source: 'nope' is unknown (known: cifar10, "),
        ({"other_data": {"a": {"source": "nope"}}}, "other_data.a.source: 'nope' is unknown (known: cifar10, "),
        ({"other_data": {"D": DIGITS}}, "other_data.D: D is the data set of the field data; choose another name"),
        (
            {"data": concatenated({"source": "mnits"})},
            "data.operations.1.data.source: 'mnits' is unknown (did you mean ",
        ),
        (
            {"other_data": {"a": concatenated({"source": "npz"})}},
            "other_data.a.operations.1.data.path: the source 'npz' needs the path of your files",
        ),
        ({"architecture": {"name": "resnet17"}}, "architecture.name: 'resnet17' is unknown (did you mean 'resnet18'?)"),
        (
            {"other_architectures": {"a": {"name": "resnet17"}}},
            "other_architectures.a.name: 'resnet17' is unknown (did you mean 'resnet18'?)",
        ),
    ],
)
def test_names_are_told_with_their_own_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert refusal(tmp_path, changes).startswith(message)


def test_the_splits_of_every_published_source_are_known() -> None:
    unknown = {name for name, source in SOURCES.items() if source.splits is None}
    assert unknown == {name for name, source in SOURCES.items() if source.has_own_files} - {"constructed"}
    assert unknown


@pytest.mark.parametrize("source", ["mnist", "cifar10", "svhn", "cifar10.1-v4", "cinic10-imagenet"])
def test_a_share_of_a_published_test_split_is_refused(tmp_path: Path, source: str) -> None:
    for data, field in (({"source": source, "test": 0.2}, ""), (concatenated({"source": source, "test": 0.2}), "1")):
        where = "other_data.a" + (f".operations.{field}.data" if field else "")
        expected = f"{where}.test: the source '{source}' has a test split of its own"
        assert refusal(tmp_path, {"other_data": {"a": data}}) == expected


def test_a_pool_needs_a_share_for_testing(tmp_path: Path) -> None:
    needed = "the source '{}' has one pool of images; say what share of it is for testing"
    assert refusal(tmp_path, {"data": {"source": "digits"}}) == f"data.test: {needed.format('digits')}"
    inside = concatenated({"source": "digits", "validation": 0.1})
    assert refusal(tmp_path, {"data": inside}) == f"data.operations.1.data.test: {needed.format('digits')}"
    constructed = {"source": "constructed", "path": str(tmp_path), "sha256": "a"}
    assert refusal(tmp_path, {"data": constructed}) == f"data.test: {needed.format('constructed')}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "restricted-imagenet"}, "size: the source 'restricted-imagenet' needs a size, such as 224; "),
        (
            {"source": "restricted-imagenet", "size": 64, "test": 0.1},
            "test: the source 'restricted-imagenet' has a test ",
        ),
        (
            {"source": "cinic10", "validation": 0.1},
            "validation: the source 'cinic10' has a validation split of its own",
        ),
        (
            {"source": "cifar10.1-v6", "validation": 0.1},
            "validation: the source 'cifar10.1-v6' has no images to train on",
        ),
    ],
)
def test_what_a_source_needs_or_does_not_take(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    assert refusal(tmp_path, {"other_data": {"a": data}}).startswith(f"other_data.a.{message}")


@pytest.mark.parametrize("data", [{"source": "digits", "test": 0.25}, {"source": "mnist"}, {"source": "svhn"}])
def test_a_derived_split_that_the_data_lacks_is_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    expected = "derived.D_det.splits: data has no validation split; give data.validation a share"
    assert refusal(tmp_path, {"data": data}).startswith(expected)


@pytest.mark.parametrize(
    "data",
    [
        {"source": "mnist", "validation": 0.1},
        {"source": "cinic10"},
        {"source": "cifar10", "operations": [{"kind": "concatenate", "data": {"source": "cinic10"}}]},
    ],
)
def test_a_validation_split_may_come_from_anywhere(tmp_path: Path, data: dict[str, Any]) -> None:
    assert planned(tmp_path, {"data": data}).recipes


def test_own_files_may_bring_a_validation_split(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(b"")
    assert planned(tmp_path, {"data": {"source": "npz", "path": str(path), "sha256": sha256().hexdigest()}}).recipes


TRAINING = {"epochs": 2, "batch_size": 64, "learning_rate": 0.1}
INVERSION = {"kind": "inversion", "start": "noise", "step_size": 0.1, "steps": 5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experiments": {"A7": {"foo": 1}}}, "experiments.A7.foo: unknown field (no fields here)"),
        (
            {"training": {"data": {**TRAINING, "data": 1}}},
            "training.data.data: unknown field (known: adversary, augmentation, batch_size, epochs, "
            "gpus_per_training, learning_rate, milestones, momentum, natural, optimiser, schedule, weight_decay)",
        ),
        (
            {"robustness": {"norm": "l2", "eps": [1.0], "attacks": [{"kind": "noise", "draws": 1, "steps": 1}]}},
            "robustness.attacks.0.steps: unknown field (known: draws, kind)",
        ),
        (
            {"data": {**DIGITS, "operations": [{"kind": "subset", "splt": "train"}]}},
            "data.operations.0.splt: unknown field (did you mean 'split'?)",
        ),
        (
            {"data": concatenated({"source": "mnist", "tset": 0.1})},
            "data.operations.1.data.tset: unknown field (did you mean 'test'?)",
        ),
        (
            {"training": {"pgd": {**TRAINING, "batchsize": 1}}},
            "training.pgd.batchsize: unknown field (did you mean 'batch_size'?)",
        ),
        (
            {"derived": {"int": {"source": "a", "training": "b", "method": {**INVERSION, "eps": 1.0}}}},
            "derived.int.method.eps: unknown field (did you mean 'steps'?)",
        ),
        (
            {"derived": {"a": {"source": "a", "training": "b", "method": {"steps": 1}}}},
            "derived.a.method.kind: the field",
        ),
        (
            {"training": {"a": {**TRAINING, "augmentation": {"crop": 4}}}},
            "training.a.augmentation.crop: unknown field (known: colour_jitter, crop_padding, flip, rotation, ",
        ),
        ({"sources": 1}, "sources: unknown field (known: architecture, compile, data, derived, experiments, "),
        (
            {"experiments": {"B5": {"first": {"dta": "a"}}}},
            "experiments.B5.first.dta: unknown field (did you mean 'data'?)",
        ),
    ],
)
def test_unknown_fields_are_told_with_those_beside_them(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert refusal(tmp_path, changes).startswith(message)


ADVERSARY = {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 3}


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"milestones": [1]}, "milestones: the schedule 'one-cycle' takes none; 'step' does"),
        ({"schedule": "constant", "milestones": [1]}, "milestones: the schedule 'constant' takes none; 'step' does"),
        (
            {"schedule": "step", "milestones": [1, 2]},
            "milestones: 2 is not below the 2 epochs, so nothing follows it",
        ),
        ({"natural": 0.5}, "natural: 0.5 of a batch is spared, but there is no adversary"),
    ],
)
def test_values_without_effect_are_refused(tmp_path: Path, training: dict[str, Any], message: str) -> None:
    assert refusal(tmp_path, {"training": {"a": {**TRAINING, **training}}, "derived": None}) == f"training.a.{message}"


@pytest.mark.parametrize(
    "training", [{"schedule": "step", "milestones": [1]}, {"natural": 0.5, "adversary": ADVERSARY}, {"natural": 0.0}]
)
def test_values_with_an_effect_are_not(tmp_path: Path, training: dict[str, Any]) -> None:
    given = {"training": {"a": {**TRAINING, **training}}, "derived": None, "experiments": {}}
    assert not planned(tmp_path, given).recipes


LARGE = "pixels lie in [0, 1], so that a Linf radius is below 1: 8/255 is 0.0314"
ATTACKED = {"source": "pathway-1", "training": "pathway-1"}
TARGETED = {"kind": "targeted-attack", "target": "next", "norm": "linf", "eps": 1.0, "step_size": 0.1, "steps": 2}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"training": {"a": {**TRAINING, "adversary": {**ADVERSARY, "norm": "linf", "eps": 8}}}},
            "training.a.adversary",
        ),
        ({"derived": {"a": {**ATTACKED, "method": TARGETED}}}, "derived.a.method"),
        (
            {"robustness": {"norm": "linf", "eps": [0.1, 8.0], "attacks": [{"kind": "noise", "draws": 1}]}},
            "robustness",
        ),
        ({"experiments": {"C2": {"eps": {"l2": [8.0], "linf": [0.1, 8.0]}}}}, "experiments.C2"),
        ({"experiments": {"C4": {"eps": {"linf": 8.0}, "images": 1, "references": 1}}}, "experiments.C4"),
        ({"experiments": {"D4": {"eps": 8.0, "images_per_class": 1, "pairs": [["1", "2"]]}}}, "experiments.D4"),
        (
            {
                "experiments": {
                    "C7": {"data": "a", "architecture": "a", "training": "a", "eps": 8.0, "fractions": [0.1]}
                }
            },
            "experiments.C7",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_linf_radius_beyond_the_pixels_is_refused(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    assert refusal(tmp_path, changes).startswith(f"{field}.eps: {LARGE}")


def test_a_linf_radius_of_an_experiment_alone_is_refused(tmp_path: Path) -> None:
    robustness = {"norm": "linf", "eps": [0.1], "attacks": [{"kind": "noise", "draws": 1}]}
    changes = {"robustness": robustness, "experiments": {"X3": {"eps": [2.0]}}}
    assert refusal(tmp_path, changes) == f"experiments.X3.eps: {LARGE}; experiment X3 needs it"


def test_a_large_radius_in_l2_is_none(tmp_path: Path) -> None:
    robustness = {"norm": "l2", "eps": [8.0], "attacks": [{"kind": "noise", "draws": 1}]}
    assert planned(tmp_path, {"robustness": robustness}).recipes


def test_cells_of_grids_are_checked_too(tmp_path: Path) -> None:
    grids = {"table": {"base": "pathway-2", "cells": [{"epochs": [3, 2]}]}}
    expected = "grids.table.epochs-2.milestones: 2 is not below the 2 epochs, so nothing follows it"
    assert refusal(tmp_path, {"grids": grids}) == expected


def test_a_setting_that_no_paper_has_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"published_setting": "CIFAR10"}) == (
        "published_setting: 'CIFAR10' is in no paper (did you mean 'CIFAR-10'?)"
    )
    for setting in ("CIFAR-10", "CIFAR-minus-Flickr and CINIC-10"):
        assert planned(tmp_path, {"published_setting": setting}).views


def test_a_study_is_reduced_from_a_setting_of_a_paper(tmp_path: Path) -> None:
    expected = "reduced: there is no published_setting that the study could be a reduced version of"
    assert refusal(tmp_path, {"reduced": True}) == expected
    views = planned(tmp_path, {"reduced": True, "published_setting": "MNIST"}).views
    assert {view.record["reduced"] for view in views} == {True}


def test_a_list_needs_its_digest_to_be_planned_but_not_to_be_fetched(tmp_path: Path) -> None:
    listed = {"kind": "listed", "split": "train", "path": "keep.txt"}
    missing = "path: keep.txt has no sha256; `robustfeatures fetch --study NAME` prints it"
    other = {"source": "mnist", "operations": [listed]}
    for data, where in ((other, "operations.0"), (concatenated(other), "operations.1.data.operations.0")):
        assert refusal(tmp_path, {"other_data": {"a": data}}) == f"other_data.a.{where}.{missing}"
        # `fetch` only needs to read the study.
        assert read_study(tmp_path / "changed.yaml").other_data["a"].source == data["source"]
    assert planned(tmp_path, {"other_data": {"a": {**other, "operations": [{**listed, "sha256": "b"}]}}}).recipes
