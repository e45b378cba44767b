"""Estimates of jobs, compared with the true operations of networks and sizes of data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, CarliniWagner, Evaluation, Noise
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.registry import Size
from robustfeatures.data.settings import Data, Subset
from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import (
    Derived,
    Inversion,
    LossGradient,
    Method,
    Misclassified,
    TargetedAttack,
    Transferring,
    UntargetedAttack,
)
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.registry import load_attribute
from robustfeatures.engine.settings import Precision
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.registry import NETWORKS
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan import estimates
from robustfeatures.pipeline.plan.estimates import estimate, forward_operations
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.plan.sizes import original_data_size
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.store.datasets import MOST_SHARDS
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.settings import Adversary, Model, Probe, ProbeAttack, Training
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


class Operations(TorchDispatchMode):
    """Counts the floating point operations inside, with torch's formulas for each kind of operation."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function.overloadpacket in flop_registry:
            self.count += flop_registry[function.overloadpacket](*args, **(kwargs or {}), out_val=found)
        return found


def count_forwards(network: nn.Module, image_shape: tuple[int, int, int], work: Callable[[], object]) -> float:
    """The operations of some work, in forward passes of one image."""
    with Operations() as one, torch.no_grad():
        network(torch.rand(1, *image_shape))
    with Operations() as all_:
        work()
    return all_.count / one.count


TRAINING = Training(
    epochs=3,
    batch_size=16,
    learning_rate=0.1,
    adversary=Adversary(norm="l2", eps=0.1, step_size=0.1, steps=4),
    natural=0.25,
)
SHAPE, IMAGES, RADII = (1, 8, 8), 6, (0.1, 0.2)
SLOW_PARTS = ("apgd-t", "fab-t")


@pytest.fixture
def unbreakable() -> FrozenNetwork:
    """A network that predicts class 0 whatever it sees, and has gradients all the same."""
    return make_unbreakable("small-cnn")


def make_unbreakable(name: str) -> FrozenNetwork:
    torch.manual_seed(0)
    network = create(name, num_classes=10, image_shape=SHAPE).eval()
    with torch.no_grad():
        network.head.bias[0] += 1000.0
    return FrozenNetwork(network)


def work_of(network: FrozenNetwork, attack: Attack, images: int) -> tuple[float, float]:
    """The forward passes that an evaluation does, and those that it is estimated to do."""
    split = EvaluatedSplit(network, InMemory(torch.rand(images, *SHAPE)), torch.zeros(images).long(), 10)
    parameters = Evaluation(split="test", norm="l2", attacks=(attack,), eps=(0.0, *RADII))
    done = count_forwards(network, SHAPE, lambda: evaluate_block(split, torch.arange(images), parameters))
    data = Recipe("data", Data(source="digits", validation=0.1, test=0.1), {})
    architecture = Architecture(name="small-cnn")
    model = Recipe("model", Model(architecture=architecture, training=TRAINING, seed=0), {"data": data})
    estimated = estimate(Recipe("evaluation", parameters, {"model": model, "data": data})).operations
    tested = original_data_size(data).images["test"]  # type: ignore[union-attr]
    return done / images, estimated / forward_operations(architecture, SHAPE) / tested


@pytest.mark.parametrize(
    "attack",
    [
        PGD(kind="pgd", steps=5, relative_step_sizes=(0.1, 0.3), random_starts=1),
        CarliniWagner(kind="cw-l2", searches=2, steps=7),
        Noise(kind="noise", draws=9),
    ],
    ids=lambda attack: attack.name,
)
def test_an_attack_does_the_work_that_is_estimated(unbreakable: FrozenNetwork, attack: Attack) -> None:
    done, estimated = work_of(unbreakable, attack, IMAGES)
    assert done == pytest.approx(estimated)


@pytest.mark.parametrize("part", ["apgd-ce", "square", *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW_PARTS)])
def test_autoattack_does_about_the_work_that_is_estimated(part: Any) -> None:
    done, estimated = work_of(make_unbreakable("linear"), AutoAttack(kind="autoattack", parts=(part,), queries=200), 2)
    assert done == pytest.approx(estimated, rel=0.1)


@pytest.mark.parametrize(
    "method",
    [
        Inversion(kind="inversion", start="noise", step_size=0.1, steps=4),
        TargetedAttack(kind="targeted-attack", target=0, norm="l2", eps=0.5, step_size=0.1, steps=3),
        UntargetedAttack(kind="untargeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=5),
        LossGradient(kind="loss-gradient"),
        Misclassified(kind="errors"),
        Transferring(kind="transferring", transfers=True),
    ],
    ids=lambda method: method.kind,
)
def test_a_derived_set_takes_the_work_that_is_estimated(unbreakable: FrozenNetwork, method: Method) -> None:
    rows = np.arange(IMAGES)
    images = np.random.default_rng(0).random((IMAGES, *SHAPE), np.float32)
    original = ImageDataset(images, rows % 3, {"source_index": rows}, tuple("abcdefghij"))
    derive = load_attribute(f"{METHODS[method.kind].module}:derive")

    def make() -> None:
        derivation = derive(unbreakable, original, method, seed=0, device=torch.device("cpu"))
        derivation.images(np.arange(len(derivation)), lambda steps: None)

    # The representation of an inversion leaves out the head.
    expected = IMAGES * METHODS[method.kind].forwards(method)
    assert count_forwards(unbreakable, SHAPE, make) == pytest.approx(expected, rel=0.01)


def test_a_training_does_the_work_that_is_estimated() -> None:
    """Of 64 images in each epoch a quarter is not attacked; the probe sees 20 images after epochs 2 and 3."""
    subset = Subset(kind="subset", split="train", samples=64)
    data = Recipe("data", Data(source="digits", validation=0.1, test=0.1, operations=(subset,)), {})
    attack = ProbeAttack(norm="l2", eps=0.1, step_size=0.1, steps=2)
    probe = Probe(name="probe", input="data", split="test", images=20, every=2, attack=attack)
    architecture = Architecture(name="resnet18", width=8)
    parameters = Model(architecture=architecture, training=TRAINING, seed=0, probes=(probe,))
    estimated = estimate(Recipe("model", parameters, {"data": data}))
    forwards = estimated.operations / forward_operations(architecture, SHAPE)
    assert forwards == 3 * 64 * (3 + 2 * 4 * 0.75) + 2 * 20 * (2 * 2 + 1)
    assert estimated.updating / forward_operations(architecture, SHAPE) == 3 * 64 * 3
    torch.manual_seed(0)
    network = create("resnet18", num_classes=10, image_shape=SHAPE, width=8)
    images, labels = InMemory(torch.rand(64, *SHAPE)), torch.arange(64) % 10
    probes = [
        ProbeSet("probe", InMemory(torch.rand(20, *SHAPE)), labels[:20], every=2, attack=Attacker(network, attack))
    ]
    attacker = Attacker(network, TRAINING.adversary)  # type: ignore[arg-type]

    def work() -> None:
        train(network, images, labels, TRAINING, seed=0, probes=probes, perturbation=attacker)

    done = count_forwards(network.eval(), SHAPE, work)
    # An update needs no gradient of the first convolution's input.
    assert 0.95 * forwards < done <= forwards


def test_half_precision_is_faster_on_a_gpu_where_a_study_asks_for_it() -> None:
    data = Recipe("data", Data(source="cifar10", validation=0.1), {})

    def seconds(precision: Precision, *, gpu: bool) -> float:
        model = Model(architecture=Architecture(name="resnet18"), training=TRAINING, seed=0, precision=precision)
        return estimate(Recipe("model", model, {"data": data})).seconds(gpu=gpu, threads=1, parts=1)

    assert seconds("bfloat16", gpu=True) < seconds("float32", gpu=True)
    assert seconds("bfloat16", gpu=False) == seconds("float32", gpu=False)


def test_small_jobs_need_no_gpu(tmp_path: Path) -> None:
    """1e14 operations or more are worth one; toy models never are."""
    used = {}
    for study in ("digits", "theory", "not-bugs-cifar10"):
        for setting in ("auto", 1):
            config = Config(study=study, device="cuda", gpus_per_job=setting)  # type: ignore[arg-type]
            plan = unfold(config, STUDIES)
            tasks = make_tasks(plan, config, gpus=1)
            used[study, setting] = {task.name.partition("/")[0] for task in tasks if task.gpu}
            if setting == "auto":
                large = {
                    name
                    for name, recipe in plan.recipes.items()
                    if isinstance(recipe.parameters, Model | Derived | Evaluation)
                    and estimate(recipe).operations >= 1e14
                }
                assert large == {
                    name
                    for task in tasks
                    for name in task.artifacts
                    if task.gpu and not name.startswith("measurement/")
                }
    assert used["digits", "auto"] == used["theory", "auto"] == used["theory", 1] == set()
    assert used["digits", 1] == {"model", "derived", "evaluation"}
    assert {"model", "derived", "evaluation"} <= used["not-bugs-cifar10", "auto"]


def test_a_study_of_large_images_asks_for_more() -> None:
    asked = {}
    for study in ("digits", "not-bugs-cifar10", "not-bugs-restricted-imagenet"):
        config = Config(study=study, device="cuda", gpus_per_job=1)
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
        stage = Path(name).parent.name
        # A set of unchanged images is one job.
        parts = {"derived": 1 if "errors" in name else 4, "evaluation": 2}.get(stage, 1)
        assert four[name].parts == parts
        # The time to start and to read is not divided.
        assert task.minutes / parts <= four[name].minutes <= task.minutes
        estimated = estimate(plan.recipes[name])
        shared_seconds = estimated.seconds(gpu=True, threads=1, parts=parts)
        assert (shared_seconds < estimated.seconds(gpu=True, threads=1, parts=1)) == (parts > 1)


def test_gpus_share_the_time_of_a_training_but_not_its_images(tmp_path: Path) -> None:
    study = read_values(STUDIES / "not-bugs-cifar10.yaml").values
    asked = []
    for name, gpus in (("one", 1), ("four", 4)):
        for training in study["training"].values():
            training["gpus_per_training"] = gpus
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**study, "experiments": {"A1": {}}}))
        config = Config(study=name, device="cuda", seeds_per_job=1)
        tasks = make_tasks(unfold(config, tmp_path), config, gpus=1)
        asked.append(max((task for task in tasks if task.name.startswith("model/")), key=lambda task: task.minutes))
        assert {task.gpu for task in tasks if task.name.startswith("derived/")} == {1}
    one, four = asked
    assert (one.gpu, one.processes, four.gpu, four.processes) == (1, 1, 4, 4)
    # The time to start and to read is not divided.
    assert one.minutes / 4 <= four.minutes < one.minutes / 2
    assert four.memory_mb == pytest.approx(4 * one.memory_mb, rel=0.01)


def longest(folder: Path, name: str, changes: dict[str, Any]) -> int:
    """The minutes of the longest job of the CIFAR-10 study with other data."""
    study = {**read_values(STUDIES / "not-bugs-cifar10-fast.yaml").values, **changes}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**study, "experiments": {"A1": {}}}))
    config = Config(study=name, device="cuda", seeds_per_job=1, gpus_per_job=1)
    return max(task.minutes for task in make_tasks(unfold(config, folder), config, gpus=1))


def test_a_large_folder_asks_for_the_memory_of_its_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """ImageNet: 193 GB of uint8 in 40 shards, each twice in memory."""
    assert estimates.SHARDS == MOST_SHARDS
    size = Size({"train": 1_281_167}, (3, 224, 224))
    monkeypatch.setattr(estimates, "original_data_size", lambda recipe: size)
    data = Recipe("data", Data(source="folder", path="images", sha256="0" * 64, size=224), {})
    assert estimate(data).memory_mb == pytest.approx(3000 + 2 * 193_000 / 40, rel=0.01)
    npz = Recipe("data", Data(source="npz", path="images.npz", sha256="0" * 64), {})
    assert estimate(npz).memory_mb > 193_000


def test_900_small_images_ask_for_minutes(tmp_path: Path) -> None:
    """Image folders and `.npz` files are counted, so that the estimate is that of a published set of their size."""
    pixels = np.random.default_rng(0).integers(0, 256, (900, 32, 32, 3), np.uint8)
    for number, image in enumerate(pixels):
        path = tmp_path / "photographs" / str(number % 3) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    np.savez(tmp_path / "photographs.npz", images=pixels.transpose(0, 3, 1, 2), labels=np.arange(900) % 3)
    minutes = {}
    for source, name in (("folder", "photographs"), ("npz", "photographs.npz")):
        own = {"source": source, "path": str(tmp_path / name)}
        sha256 = load_attribute(f"robustfeatures.data.{source}:compute_digest")(Data(**own))
        minutes[source] = longest(tmp_path, source, {"data": {**own, "sha256": sha256, "test": 0.2, "validation": 0.1}})
    assert minutes["folder"] == minutes["npz"] < 10
    # 60 000 images of the same size, for comparison.
    assert longest(tmp_path, "cifar10", {"data": {"source": "cifar10", "validation": 0.1}}) > 2 * minutes["folder"]


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
