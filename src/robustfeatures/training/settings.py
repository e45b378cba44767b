"""The settings of a training and of its probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt
from pydantic import AfterValidator

from robustfeatures.attacks.settings import PGDSettings
from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import (
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Precision,
    Seed,
    Strict,
)
from robustfeatures.models.settings import Architecture


@dataclass(frozen=True, kw_only=True)
class Adversary(PGDSettings):
    """The PGD attack inside adversarial training."""

    random_start: bool = False
    """Whether the attack starts at a random point of the ball, in place of the image."""


@dataclass(frozen=True, kw_only=True)
class Augmentation(Strict):
    """Random changes of each training image, drawn anew in every epoch and applied in the order of the fields."""

    crop_padding: Annotated[int, Ge(0)] = 0
    """Pad with this many zero pixels on each side, then crop to the old size."""
    flip: bool = False
    """Mirror half of the images."""
    smallest_crop: Fraction | None = None
    """Crop at least this share of the area, with an aspect ratio of 3:4 to 4:3 or nearer to the image's, and resize."""
    rotation: Annotated[float, Ge(0), Le(180)] = 0.0
    """Rotate by at most this many degrees."""
    colour_jitter: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Scale brightness, contrast and saturation by factors of 1 +- this share."""


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Gradient descent on the cross-entropy: SGD with momentum, or Adam."""

    epochs: PositiveInt
    """The number of passes over the training images."""
    batch_size: PositiveInt
    """The number of images of one step."""
    learning_rate: PositiveFloat
    """The learning rate; with `one-cycle` the highest one."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """The momentum of SGD, or beta_1 of Adam."""
    weight_decay: NonNegativeFloat = 0.0
    """The share of each weight that is added to its gradient."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """The method of gradient descent."""
    schedule: Literal["constant", "one-cycle", "step"] = "one-cycle"
    """The learning rate over time: `one-cycle` rises for a quarter of the steps and then falls to 0."""
    milestones: tuple[PositiveInt, ...] = ()
    """With `step`, the epochs after which the learning rate falls to a tenth."""
    augmentation: Augmentation | None = None
    """Random changes of the training images; none if it is not given."""
    adversary: Adversary | None = None
    """The attack of adversarial training; training is standard if it is not given."""
    natural: Annotated[float, Ge(0), Lt(1)] = 0.0
    """The share of each batch that the adversary leaves as it is; 0.5 is the half-half training (at-odds-2019, B)."""
    gpus_per_training: Annotated[PositiveInt | None, AfterValidator(lambda count: None if count == 1 else count)] = None
    """The number of GPUs of one machine that each take an equal part of every batch; 1 if it is not given."""


@dataclass(frozen=True, kw_only=True)
class ProbeAttack(Adversary):
    """PGD on the network in training."""

    targeted: bool = False
    """Whether the attack goes towards the labels of the probe, or away from them."""


@dataclass(frozen=True, kw_only=True)
class Probe(Strict):
    """A measurement while a network trains, on one split of one input, with labels y or (y + label_shift) mod C."""

    name: str
    """The name of the measurement in the history."""
    input: str
    """The input of the training that has the images."""
    split: Split
    """The split that is measured."""
    label_shift: Annotated[int, Ge(0)] = 0
    """The shift s of the labels (y + s) mod C."""
    simple_classifier: str | None = None
    """The input with the predictions of a simple classifier. If it is given, the performance correlation is measured,
    and not the accuracy."""
    attack: ProbeAttack | None = None
    """If it is given, adversarial examples of the network in training are measured."""
    transfer_to: tuple[str, ...] = ()
    """Inputs with other networks, which classify the same images or adversarial examples."""
    images: PositiveInt | None = None
    """The number of images, drawn at random, the same for every network; by default all."""
    every: PositiveInt = 1
    """The number of epochs between two measurements; the last epoch is always measured."""


@dataclass(frozen=True, kw_only=True)
class Model(Strict):
    """A network trained on the train split of its input `data`."""

    architecture: Architecture
    """The network."""
    training: Training
    """How it is trained."""
    seed: Seed
    """The seed of weights, batches and augmentation."""
    precision: Precision = "float32"
    """The number format of convolutions and matrix products."""
    compile: bool = False
    """Whether torch compiles the network."""
    probes: tuple[Probe, ...] = ()
    """What is measured during the training."""
