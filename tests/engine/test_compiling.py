"""Compilation is chosen by measurement, once for all jobs with a store, and only ever changes how fast numbers come."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robustfeatures.attacks import pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.derived.settings import Derived, TargetedAttack
from robustfeatures.engine import compiling
from robustfeatures.engine.batches import InMemory, batch_size
from robustfeatures.engine.compiling import EAGER, Compilation, ForOneShape, chosen, measured
from robustfeatures.engine.prepared import Prepared
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.run.stages.derived import make
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.pipeline.store.networks import save_network
from robustfeatures.pipeline.store.store import Store
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.pipeline.run.stages.jobs import job_in

SHAPE = (8, 1, 8, 8)
LAYOUT = torch.channels_last


def network() -> Network:
    torch.manual_seed(0)
    return create("small-cnn", num_classes=3, image_shape=SHAPE[1:], width=4)


class Compiler:
    """In the place of `torch.compile`: what it returns counts its calls by shape, and errs as its options say."""

    def __init__(self) -> None:
        self.calls: list[torch.Size] = []

    def __call__(self, module: nn.Module, *, dynamic: bool, options: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
        assert not dynamic

        def compiled(images: Tensor) -> Tensor:
            self.calls.append(images.shape)
            if options.get("breaks"):
                raise RuntimeError("no compiler\nand more of it")
            result: Tensor = module(images)
            return result * (1 + options.get("error", 0.0))

        return compiled


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler that every job uses, however little it has to do, and whatever it gains."""
    found = Compiler()
    monkeypatch.setattr(torch, "compile", found)
    monkeypatch.setattr(compiling, "WAYS", {"cpu": {"compiled": {}}})
    monkeypatch.setattr(compiling, "WORTH_MEASURING", {"cpu": 0.0})
    monkeypatch.setattr(compiling, "chosen", lambda seconds: "compiled")
    return found


def at_once(question: Mapping[str, Any], answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return answer()


@pytest.mark.parametrize(
    ("seconds", "way"),
    [
        ({EAGER: 1.0}, EAGER),
        ({EAGER: 1.0, "compiled": 0.5}, "compiled"),
        ({EAGER: 1.0, "compiled": 0.95}, EAGER),
        ({EAGER: 1.0, "compiled": 1.5}, EAGER),
        ({EAGER: 1.0, "compiled": 0.8, "compiled, CUDA graphs": 0.7}, "compiled, CUDA graphs"),
    ],
)
def test_only_what_is_clearly_faster_is_chosen(seconds: dict[str, float], way: str) -> None:
    assert chosen(seconds) == way


@pytest.mark.parametrize("training", [False, True])
def test_ways_that_break_or_err_are_left_out(
    training: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", Compiler())
    ways: dict[str, dict[str, Any]] = {"same": {}, "broken": {"breaks": True}, "wrong": {"error": 0.01}}
    monkeypatch.setattr(compiling, "WAYS", {"cpu": ways})
    module = network().train(training).requires_grad_(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with caplog.at_level(logging.WARNING):
        found = measured(module, SHAPE, LAYOUT, "float32")
    assert found.keys() == {EAGER, "same"}
    assert min(found.values()) > 0
    assert [record.message for record in caplog.records] == [
        "broken: no compiler; so it is not used",
        "wrong: gradients differ by 0.02 of their length, so it is not used",
    ]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_it_is_measured_once_for_a_device_a_network_and_a_batch(compiler: Compiler, tmp_path: Path) -> None:
    asked: list[Mapping[str, Any]] = []

    def remembered(question: Mapping[str, Any], answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        def measuring() -> dict[str, Any]:
            asked.append(question)
            return answer()

        return Store(tmp_path).remembered(question, measuring)

    compilation = Compilation(1.0, remembered)
    frozen, trained = network().eval().requires_grad_(False), network()
    for module, shape in ((frozen, SHAPE), (frozen, SHAPE), (frozen, (4, *SHAPE[1:])), (trained, SHAPE)):
        assert isinstance(compilation.compiled(module, shape, LAYOUT, "float32"), ForOneShape)
    assert [(question["batch"], question["training"]) for question in asked] == [
        ([8, 1, 8, 8], False),
        ([4, 1, 8, 8], False),
        ([8, 1, 8, 8], True),
    ]
    assert asked[0]["device"]
    assert len(list((tmp_path / ".measured").iterdir())) == 3
    assert not Store(tmp_path).payload_keys()


def test_short_jobs_neither_measure_nor_load_the_compiler() -> None:
    script = (
        "import sys; from tests.engine.test_compiling import *; "
        "p = Prepared(branching()); p.compile_where_it_pays(Compilation(9e14, None), SHAPE); "
        "assert p.compiled is None; assert 'torch._inductor' not in sys.modules, 'loaded'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def branching() -> Network:
    """A network that is no chain, whose gradients autograd works out."""
    torch.manual_seed(0)
    return create("resnet18", num_classes=3, image_shape=SHAPE[1:], width=4)


def test_other_shapes_and_predictions_stay_as_they_are(compiler: Compiler) -> None:
    prepared = Prepared(branching())
    prepared.compile_where_it_pays(Compilation(1.0, at_once), SHAPE)
    compiler.calls.clear()
    images = torch.rand(SHAPE)
    with torch.no_grad():
        prepared(images)
    prepared(images[:5].requires_grad_())
    assert not compiler.calls
    prepared(images.requires_grad_())
    prepared.representation(images)
    assert compiler.calls == [torch.Size(SHAPE)] * 2


@pytest.mark.parametrize("architecture", ["small-cnn", "linear"])
def test_gradients_by_hand_stay_as_they_are(compiler: Compiler, architecture: str) -> None:
    prepared = Prepared(create(architecture, num_classes=3, image_shape=SHAPE[1:], width=None))
    prepared.compile_where_it_pays(Compilation(1.0, at_once), SHAPE)
    assert prepared.compiled is None
    assert not compiler.calls


def test_a_compiler_that_fails_where_it_worked_before_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", Compiler())
    module = network().requires_grad_(False)
    with pytest.raises(
        UserError, match=r"^torch\.compile: no compiler; it worked where this was measured: .*\.measured"
    ):
        ForOneShape(module, SHAPE, {"breaks": True})(torch.rand(SHAPE))


def test_what_is_compiled_follows_the_training(compiler: Compiler) -> None:
    """The block that a batch is attacked in, and the step on a whole batch; the last, smaller one stays as it is."""
    images, labels = torch.rand(600, 1, 8, 8), torch.arange(600) % 3
    settings = Training(epochs=2, batch_size=520, learning_rate=0.1, schedule="constant", natural=0.0)
    adversary = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=2)
    block = batch_size(torch.device("cpu"), (1, 8, 8))
    assert block < settings.batch_size
    weights = []
    for compilation in (None, Compilation(1.0, at_once)):
        trained = branching()
        attacker = Attacker(trained, adversary, "float32")
        if compilation:
            attacker.compile_where_it_pays(compilation, (settings.batch_size, 1, 8, 8))
            compiler.calls.clear()
        train(trained, InMemory(images), labels, settings, seed=0, perturbation=attacker, compilation=compilation)
        weights.append(torch.cat([parameter.flatten() for parameter in trained.parameters()]))
    assert torch.equal(*weights)
    # An epoch is one whole batch, attacked in two halves by two steps each; the loop itself is measured first.
    attacks, steps = torch.Size((260, 1, 8, 8)), torch.Size((520, 1, 8, 8))
    assert compiler.calls[-10:] == [*[attacks] * 4, steps] * 2


def test_a_derived_set_is_compiled_the_same_in_every_job(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size = batch_size(torch.device("cpu"), (1, 8, 8))
    count = size + 10
    pixels = np.random.default_rng(0).integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)
    data = ImageDataset(pixels, np.arange(count) % 3, {"source_index": np.arange(count)}, ("a", "b", "c"))
    write_dataset(tmp_path / "data.zarr", {"train": data})
    inputs = {"data": tmp_path / "data.zarr", "source": tmp_path / "model.safetensors"}
    save_network(
        branching(),
        inputs["source"],
        architecture="resnet18",
        width=4,
        class_names=data.class_names,
        image_shape=(1, 8, 8),
    )
    attack = TargetedAttack(kind="targeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=3, target="next")
    parameters = Derived(method=attack, seed=0, splits=("train",))

    def made(name: str, operations: float) -> NDArray[np.float32]:
        folder = tmp_path / name
        folder.mkdir()
        compiler.calls.clear()
        make(parameters, folder, job_in(folder, inputs, Store(tmp_path / "store"), operations=operations))
        return read_dataset(folder / "data.zarr", "train").float_images()

    expected = made("short", -1.0)
    assert not compiler.calls
    np.testing.assert_array_equal(made("measures", 1.0), expected)
    assert compiler.calls
    monkeypatch.setattr(compiling, "measured", lambda *_: pytest.fail("it was measured before"))
    np.testing.assert_array_equal(made("knows", 1.0), expected)
    # The block of 10 images is computed as it is.
    assert compiler.calls == [torch.Size((size, 1, 8, 8))] * attack.steps


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with a C++ compiler, and there is none")
def test_torchs_own_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An adversarial training whose attack and whose steps are compiled ends near the one where they are not."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "WORTH_MEASURING", {"cpu": 0.0})
    monkeypatch.setattr(compiling, "chosen", lambda seconds: "compiled" if "compiled" in seconds else "failed")
    torch.manual_seed(0)
    # Whole batches alone: a step on few images, whose batch norm sees four values, magnifies last bits a hundredfold.
    images, labels = torch.rand(16, 1, 8, 8), torch.arange(16) % 3
    settings = Training(epochs=2, batch_size=8, learning_rate=0.01, schedule="constant")
    adversary = Adversary(norm="l2", eps=0.5, step_size=0.2, steps=2)
    weights, found = [], []
    for compilation in (None, Compilation(1.0, at_once)):
        trained = branching()
        attacker = Attacker(trained, adversary, "float32")
        if compilation:
            attacker.compile_where_it_pays(compilation, SHAPE)
            assert attacker.prepared.compiled is not None
        train(trained, InMemory(images), labels, settings, seed=0, perturbation=attacker, compilation=compilation)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in trained.parameters()]))
        attacker.prepared.refresh()
        found.append(pgd(attacker.prepared, images[:8], labels[:8], norm="l2", eps=0.5, step_size=0.1, steps=3))
    start = torch.cat([parameter.detach().flatten() for parameter in branching().parameters()])
    moved = (weights[0] - start).norm()
    assert (weights[1] - weights[0]).norm() < 0.01 * moved
    assert (found[0] - images[:8]).abs().max() > 0.01
    assert (found[1] - found[0]).flatten(1).norm(dim=1).max() < 0.02
