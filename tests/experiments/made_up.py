"""Made-up results of any experiment of a study: rows of the right shape, with values that need not make sense."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.settings import MergeClasses
from robustfeatures.experiments import d1_feature_learning, d2_two_minima
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.perception import TITLES
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.plan.view import Part
from robustfeatures.pipeline.report.building import describe_attacks, read_published, split_by_attack
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.theory.ideal_radii import OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, ideal_radius
from robustfeatures.training.settings import Model
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"
# Epochs of long trainings that have a row.
MOST_EPOCHS = 30
CLASSES = tuple("0123456789")
SIDE, IMAGES = 8, 20

Row = dict[str, Any]


@cache
def parts(study: str) -> dict[str, Part]:
    """The planned experiments of a study, by id."""
    plan = unfold(Config(study=study), STUDIES)
    return {part.experiment.id: part for view in plan.views for part in view.parts if part.needs}


def make_up(study: str, identifier: str, folder: Path, *, seeds: int | None = None) -> tuple[Experiment, Results]:
    """An experiment of a study with made-up results, of its first `seeds` or all of them; `folder` holds its images.

    Published values are shown where the paper prints some.
    """
    part = parts(study)[identifier]
    random = np.random.default_rng(zlib.crc32(f"{study} {identifier}".encode()))
    rows: dict[str, list[Row]] = {"evaluation": [], "model": [], "measurement": []}
    payloads = {}
    chosen = sorted({need.seed for need in part.needs})[:seeds]
    for need in (each for each in part.needs if each.seed in chosen):
        stage = need.recipe.stage.name
        if stage in rows:
            found = MAKERS[stage](need.recipe, random)
            # A need's columns win, as in a job.
            rows[stage] += [{**row, "row": need.row, "seed": need.seed, **need.columns} for row in found]
        else:
            payloads[need.row, need.seed] = _write_images(folder / f"{len(payloads)}.zarr", need, random)
    together, single = split_by_attack(pd.DataFrame(rows["evaluation"]))
    evaluated = [need.recipe.record() for need in part.needs if need.recipe.stage.name == "evaluation"]
    norm, attack = describe_attacks(evaluated)
    printed = read_published(part.experiment, "CIFAR-10")
    histories = pd.DataFrame(rows["model"])
    return part.experiment, Results(
        evaluations=together,
        attacks=single,
        histories=histories,
        measurements=pd.DataFrame(rows["measurement"]),
        payloads=payloads,
        settings=part.settings,
        published=None if printed is None else pd.DataFrame(printed["rows"]),
        comparable=printed is not None,
        norm=norm,
        attack=attack,
    )


def _evaluation(recipe: Recipe, random: np.random.Generator) -> Iterator[Row]:
    """Accuracies that fall with the radius, under each attack in turn."""
    given = recipe.parameters
    assert isinstance(given, Evaluation)
    names = [attack.name for attack in given.attacks]
    clean = random.integers(200, 990)
    for shift in given.label_shifts:
        for place, eps in enumerate(sorted(given.eps)):
            for ran, name in enumerate(names if eps > 0 else [""], start=1 if eps > 0 else 0):
                correct = int(clean * 0.6**place) - 5 * ran
                final = eps == 0 or ran == len(names)
                common = {"metric": "accuracy", "label_shift": shift, "eps": eps, "attack": name, "attacks": ran}
                counts = {"correct": max(correct, 0), "total": 1000, "classes": 10, "most_frequent": 100}
                yield {**common, "final": final, **counts}


def _model(recipe: Recipe, random: np.random.Generator) -> Iterator[Row]:
    """Curves that rise towards a level of their own."""
    given = recipe.parameters
    assert isinstance(given, Model)
    epochs = given.training.epochs
    for probe in given.probes:
        every = max(probe.every, epochs // MOST_EPOCHS, 1)
        for network in ("itself", *probe.transfer_to):
            level = random.uniform(10, 100)
            for epoch in sorted({*range(every, epochs + 1, every), epochs}):
                accuracy = level * (1 - np.exp(-4 * epoch / epochs)) + random.normal(0, 1)
                common = {"epoch": epoch, "probe": probe.name, "network": network, "loss": 1.0, "images": 100}
                yield {**common, "accuracy": float(np.clip(accuracy, 0, 100)), "value": accuracy / 100}


def _measurement(recipe: Recipe, random: np.random.Generator) -> Iterator[Row]:
    given = recipe.parameters
    assert isinstance(given, Measurement)
    return MEASUREMENTS[given.module](given.settings, recipe.inputs, random)


MAKERS: Mapping[str, Callable[[Recipe, np.random.Generator], Iterator[Row]]] = {
    "evaluation": _evaluation,
    "model": _model,
    "measurement": _measurement,
}


def _write_images(path: Path, need: Need, random: np.random.Generator) -> Path:
    """Images of ten classes; those of an attack have targets, those of an inversion start from other images."""
    images = random.uniform(0, 1, (IMAGES, 1, SIDE, SIDE)).astype(np.float32)
    labels, places = np.arange(IMAGES) % len(CLASSES), np.arange(IMAGES)
    attacked = need.row.startswith(("D_rand", "D_det"))
    columns = {
        "source_index": places,
        "source_label": labels,
        "target": labels if attacked else np.full(IMAGES, -1),
        "start_index": places[::-1].copy() if "images" in need.row else np.full(IMAGES, -1),
    }
    dataset = ImageDataset(images, labels, columns, CLASSES)
    write_dataset(path, dict.fromkeys(("train", "test"), dataset))
    return path


def _transfer(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for name, attack in itertools.product(settings["targets"], ("untargeted", "targeted")):
        yield {"target": name, "attack": attack, "fooled": 100, "transferred": int(random.integers(0, 101))}


def _attack_success(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    # No image of D has another target than its class.
    targeted = 0 if inputs["data"].stage.name == "data" else 90
    for augmentation in ("none", "augmented"):
        reached, kept = random.integers(0, 91, 2)
        yield {"augmentation": augmentation, "images": 100, "targeted": targeted, "reached": reached, "kept": kept}


def _nearest_other_class(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for radius in settings["radii"]:
        yield {"radius": radius, "within": float(random.uniform()), "images": 100}


def _leakage(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for role in inputs:
        if role != "model":
            name = "D" if role == "data" else role
            yield {"trained_on": name, "accuracy": random.uniform(0.1, 0.9), "usefulness": 0.1, "stable": 1.0}


def _loss_gradients(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for model, image in itertools.product(TITLES, range(IMAGES)):
        yield {"model": model, "image": image, "alignment": 0.1, "low_frequency": random.uniform(), "density": 0.5}


def _interpolations(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for model, image in itertools.product(TITLES, range(IMAGES)):
        common = {"model": model, "image": image, "label": image % 10, "reached": (image + 1) % 10}
        yield {**common, "alignment": 0.1, "low_frequency": random.uniform(), "width": 0.2, "detour": 0.1}


def _linear(training: str, solver: str, pixels: int, eps: float, random: np.random.Generator) -> Iterator[Row]:
    common: Row = {"training": training, "solver": solver, "pixels": pixels}
    common |= {"pixel": -1, "total": 0}
    for split, attack in itertools.product(("train", "test"), ("none", "clipped", "not clipped")):
        found = {"split": split, "eps": 0.0 if attack == "none" else eps, "attack": attack}
        yield {**common, "quantity": "accuracy", **found, "total": 90, "value": random.uniform(0.1, 1)}
    for quantity in ("l1_norm", "objective"):
        found = {"split": "train", "eps": eps, "attack": ""}
        yield {**common, "quantity": quantity, **found, "value": random.uniform()}


def _pixels(
    training: str, solver: str, quantity: str, random: np.random.Generator, pixels: int = SIDE * SIDE
) -> Iterator[Row]:
    common = {"training": training, "solver": solver, "pixels": pixels, "quantity": quantity, "split": "train"}
    for pixel in range(pixels):
        found = {"eps": 0.0, "attack": "", "pixel": pixel, "total": 0}
        yield {**common, **found, "value": float(random.exponential(0.1))}


def _linear_networks(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for training in ("standard", "adversarial"):
        yield from _linear(training, "gradient descent", SIDE * SIDE, settings["eps"], random)
        yield from _pixels(training, "gradient descent", "weight", random)


def _linear_solutions(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for share in (*settings["fractions"], 1.0):
        yield from _linear("standard", "exact", max(1, round(share * SIDE * SIDE)), settings["eps"], random)
    for training in ("adversarial", "adversarial, not clipped"):
        yield from _linear(training, "exact", SIDE * SIDE, settings["eps"], random)
    for training in ("standard", "adversarial", "adversarial, not clipped"):
        yield from _pixels(training, "exact", "weight", random)
    yield from _pixels("", "", "correlation", random)


def _representation_attacks(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for victim, (source, target) in itertools.product(settings["victims"], itertools.permutations(CLASSES, 2)):
        common = {"victim": victim, "source": source, "target": target, "total": 100, "before": 3}
        yield {**common, "reached": int(random.integers(0, 101))}


def _feature_heads(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for head, neuron, feature in itertools.product(("features", "2-class", "k-class"), range(10), range(10)):
        yield {"head": head, "neuron": neuron, "feature": feature, "cosine": random.uniform(-1, 1), "accuracy": 0.7}


def _two_sides(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    merged = inputs["data"].parameters.operations[-1:]
    two = bool(merged) and isinstance(merged[0], MergeClasses)
    read_outs = ("summed logits",) if two else ("summed logits", "largest logit")
    for read_out, attack in itertools.product(read_outs, ("own cross-entropy", "read-out", "either")):
        if two and attack != "own cross-entropy":
            continue
        for place, eps in enumerate(settings["eps"]):
            correct = int(random.uniform(90, 100) * 0.6**place)
            yield {"read_out": read_out, "attack": attack, "eps": eps, "correct": correct, "total": 100}


def _patch_training(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for training in ("standard", "adversarial"):
        for step in range(0, settings["steps"] + 1, settings["every"]):
            done = step / settings["steps"]
            accuracies = dict.fromkeys(d1_feature_learning.ACCURACIES, 1.0)
            late = max(0.0, done - 0.3) if training == "adversarial" else 0.0
            accuracies |= {"rotated": late, "planted": random.uniform(0.6, 1.0), "pgd": random.uniform(0.8, 1.0)}
            correlations = {"robust_correlation": 0.1 + late, "non_robust_correlation": min(0.8, 0.1 + done)}
            yield {"training": training, "step": step, "loss": 0.1, **correlations, **accuracies}


def _patch_minima(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for minimum, scale in itertools.product(("non-robust", "robust"), settings["scales"]):
        risk = float(np.exp(-(scale**2)))
        common = {"minimum": minimum, "scale": scale, "risk": risk, "noiseless_risk": risk}
        yield {**common, **{name: float(random.uniform() > 0.5) for name in d2_two_minima.ACCURACIES.values()}}


def _feature_averaging(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    clusters = settings["clusters"]
    for network, neurons in (("2-class", 2 * settings["neurons"]), ("k-class", clusters)):
        for neuron, centre in itertools.product(range(neurons), range(clusters)):
            cosine = random.uniform(-0.2, 0.9)
            common = {"network": network, "neuron": neuron, "centre": centre, "cosine": cosine}
            yield {**common, "coefficient": cosine, "accuracy": 1.0}


NETWORKS = (TWO_CLASSES, OWN_CLASSES, SUMMED, ROBUST)


def _robust_radius(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for network, attack in itertools.product(NETWORKS, ("least perturbation", "PGD")):
        cliff = ideal_radius(network, settings["clusters"], 1)
        for radius in settings["relative_radii"]:
            accuracy = 1 / (1 + np.exp(20 * (radius - cliff)))
            yield {"network": network, "attack": attack, "relative_radius": radius, "accuracy": accuracy}


def _averaged_direction(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    for place, biases in enumerate(("trained biases", "biases with perfect accuracy", "all biases")):
        for radius in settings["relative_radii"]:
            accuracy = 1 / (1 + np.exp(20 * (radius - 0.3 - 0.1 * place)))
            yield {"biases": biases, "relative_radius": radius, "accuracy": accuracy}


def _robust_cliffs(settings: Any, inputs: Any, random: np.random.Generator) -> Iterator[Row]:
    dimension = settings["dimension"]
    for clusters, network in itertools.product(settings["clusters"], NETWORKS):
        ideal = ideal_radius(network, clusters, dimension) / dimension**0.5
        common = {"clusters": clusters, "dimension": dimension, "network": network, "accuracy": 1.0}
        yield {**common, "ideal": ideal, "relative_cliff": ideal * random.uniform(0.9, 1.1)}


MEASUREMENTS: Mapping[str, Callable[[Any, Any, np.random.Generator], Iterator[Row]]] = {
    "measurements.transfer": _transfer,
    "measurements.attack_success": _attack_success,
    "measurements.nearest_other_class": _nearest_other_class,
    "measurements.leakage": _leakage,
    "measurements.loss_gradients": _loss_gradients,
    "measurements.interpolations": _interpolations,
    "measurements.linear_networks": _linear_networks,
    "measurements.linear_solutions": _linear_solutions,
    "measurements.representation_attacks": _representation_attacks,
    "measurements.feature_heads": _feature_heads,
    "measurements.two_sides": _two_sides,
    "theory.patch_training": _patch_training,
    "theory.patch_minima": _patch_minima,
    "theory.feature_averaging": _feature_averaging,
    "theory.robust_radius": _robust_radius,
    "theory.averaged_direction": _averaged_direction,
    "theory.robust_cliffs": _robust_cliffs,
}
