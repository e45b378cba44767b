"""The settings of a training and of its probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt

from robustfeatures.attacks.settings import PGDSettings
from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import Fraction, PositiveFloat, PositiveInt, Precision, Seed, Strict
from robustfeatures.models.settings import Architecture


@dataclass(frozen=True, kw_only=True)
class Adversary(PGDSettings):
    """The PGD attack inside adversarial training.

    It starts at the image or, with `random_start`, at a random point of the ball round the image.
    """

    random_start: bool = False


@dataclass(frozen=True, kw_only=True)
class Augmentation(Strict):
    """Random changes of each training image, drawn anew in every epoch and applied in the order of the fields.

    crop_padding: pad with this many zero pixels on each side, then crop to the old size.
    flip: mirror half of the images.
    smallest_crop: crop at least this share of the area, with an aspect ratio of 3:4 to 4:3, and resize to the old size.
    rotation: rotate by at most this many degrees.
    colour_jitter: scale brightness, contrast and saturation by factors of 1 +- this share.
    """

    crop_padding: Annotated[int, Ge(0)] = 0
    flip: bool = False
    smallest_crop: Fraction | None = None
    rotation: Annotated[float, Ge(0), Le(180)] = 0.0
    colour_jitter: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Gradient descent on the cross-entropy: SGD with momentum, or Adam with `momentum` as its beta_1.

    The adversary does not perturb the share `natural` of each batch; 0.5 is the half-half training of at-odds-2019,
    Appendix B.
    """

    epochs: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 0.0
    optimiser: Literal["sgd", "adam"] = "sgd"
    schedule: Literal["constant", "one-cycle", "step"] = "one-cycle"
    milestones: tuple[PositiveInt, ...] = ()
    augmentation: Augmentation | None = None
    adversary: Adversary | None = None
    natural: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeAttack(Adversary):
    """PGD on the network in training: away from the labels of the probe or, if `targeted`, towards them."""

    targeted: bool = False


@dataclass(frozen=True, kw_only=True)
class Probe(Strict):
    """A measurement while a network trains, on one split of one input, with labels y or (y + label_shift) mod C.

    measure: the accuracy, or the performance correlation with a logistic regression fitted to the training images.
    attack: if given, measure on adversarial examples of the network in training.
    transfer_to: inputs with other networks, which classify the same images or adversarial examples.
    images: the number of images, drawn at random, the same for every network; all images if None.
    every: measure after every `every` epochs, and after the last epoch.
    """

    name: str
    input: str
    split: Split
    label_shift: Annotated[int, Ge(0)] = 0
    measure: Literal["accuracy", "performance-correlation"] = "accuracy"
    attack: ProbeAttack | None = None
    transfer_to: tuple[str, ...] = ()
    images: PositiveInt | None = None
    every: PositiveInt = 1


@dataclass(frozen=True, kw_only=True)
class Model(Strict):
    """A network trained on the train split of its input `data`."""

    architecture: Architecture
    training: Training
    seed: Seed
    precision: Precision = "float32"
    compile: bool = False
    probes: tuple[Probe, ...] = ()
