"""What says how a network is trained, and what is taken of it meanwhile."""

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

    It starts at the image, or with `random_start` at a point drawn uniformly from the ball round it.
    """

    random_start: bool = False


@dataclass(frozen=True, kw_only=True)
class Augmentation(Strict):
    """Random changes of each training image, drawn anew in every epoch, in the order of the fields.

    `crop_padding` pads by that many zero pixels and crops to the old size; `flip` mirrors half of the images;
    `smallest_crop` cuts out a part of that share of the area or more, 3:4 to 4:3 and clipped to the image, and resizes
    it; `rotation` turns by up to that many degrees; `colour_jitter` scales brightness, contrast and saturation by 1 +-
    that share.
    """

    crop_padding: Annotated[int, Ge(0)] = 0
    flip: bool = False
    smallest_crop: Fraction | None = None
    rotation: Annotated[float, Ge(0), Le(180)] = 0.0
    colour_jitter: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Gradient descent on the cross-entropy: stochastic with momentum, or Adam with `momentum` as its first decay.

    The adversary leaves the share `natural` of each batch as it is; with 0.5 that is the half-half training of
    at-odds-2019, Appendix B.
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
    """PGD on the network as it is: away from the labels of the probe or, `targeted`, towards them."""

    targeted: bool = False


@dataclass(frozen=True, kw_only=True)
class Probe(Strict):
    """What is taken while a network trains, on one split of one input, with its labels y or (y + label_shift) mod C.

    `measure`: the accuracy, or the performance correlation with a logistic regression of the images trained on. With
    `attack` both are of adversarial examples; the networks in the inputs `transfer_to` are shown the same. The cost is
    bounded by `images` (a draw that is the same for every network; all without) and by `every`: how many epochs lie
    between two takings. The last epoch always has one.
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
