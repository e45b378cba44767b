"""The parameters of each stage: what a result depends on, and nothing else.

Fields are validated where a study is read; every field enters the digest of the recipe that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import ConfigDict, Discriminator, StringConstraints

# Names become parts of file names and of commands.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
Fraction = Annotated[float, Gt(0), Lt(1)]
Radius = Annotated[float, Ge(0)]
PositiveInt = Annotated[int, Gt(0)]
PositiveFloat = Annotated[float, Gt(0)]
Target = Literal["random", "next"] | Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0)]
NormName = Literal["l2", "linf"]
Split = Literal["train", "validation", "test"]


class Strict:
    """No unknown fields, no conversions between types, no NaN."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """Raw images in their canonical form, split once and for all, stratified by class.

    A `source` other than the built-in ones reads `file`, whose SHA-256 is part of the recipe.
    """

    source: str
    validation: Fraction
    test: Fraction
    split_seed: Seed = 0
    file: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict):
    """A registered network; `width` is the number of filters of its first stage."""

    name: str
    width: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class Adversary(Strict):
    """The PGD attack inside adversarial training; radii and steps in units of [0, 1] pixels."""

    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Stochastic gradient descent with momentum on the cross-entropy."""

    epochs: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 0.0
    schedule: Literal["constant", "one-cycle", "step"] = "one-cycle"
    milestones: tuple[PositiveInt, ...] = ()
    augmentation: Literal["none", "shift"] = "none"
    adversary: Adversary | None = None


@dataclass(frozen=True, kw_only=True)
class Probe(Strict):
    """An accuracy taken after every epoch on one split of one input, with its labels y or (y + label_shift) mod C."""

    name: str
    input: str
    split: Split
    label_shift: Annotated[int, Ge(0)] = 0


@dataclass(frozen=True, kw_only=True)
class Model(Strict):
    """A network trained on the train split of its input `data`."""

    architecture: Architecture
    training: Training
    seed: Seed
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inversion(Strict):
    """D_R and D_NR: match the representation of the image, from another image or from noise (not-bugs-2019, C.4)."""

    kind: Literal["inversion"]
    start: Literal["images", "noise"]
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class TargetedAttack(Strict):
    """D_rand and D_det: targeted PGD, relabelled with the target (not-bugs-2019, C.5).

    The target is drawn uniformly ("random"), is (y + 1) mod C ("next"), or is one class for all.
    """

    kind: Literal["targeted-attack"]
    target: Target
    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt


Method = Annotated[Inversion | TargetedAttack, Discriminator("kind")]


@dataclass(frozen=True, kw_only=True)
class Derived(Strict):
    """A data set made from the input `data` with the network `source`; only the named splits are derived."""

    method: Method
    seed: Seed
    splits: Annotated[tuple[Split, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Attack(Strict):
    """The PGD attack of an evaluation: from the image itself, with steps of `relative_step_size` * eps."""

    norm: NormName
    steps: PositiveInt
    relative_step_size: Annotated[float, Gt(0), Le(1)]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Strict):
    """The accuracy of the input `model` on one split of the input `data`, at every radius and every label shift."""

    split: Split
    attack: Attack
    eps: Annotated[tuple[Radius, ...], MinLen(1)]
    label_shifts: Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)] = (0,)


Parameters = Data | Model | Derived | Evaluation
