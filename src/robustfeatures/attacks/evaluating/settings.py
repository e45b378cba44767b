"""The settings of an evaluation and of its attacks, by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Discriminator

from robustfeatures.attacks.settings import NormName, Radius
from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Precision, Strict

RelativeStep = Annotated[float, Gt(0), Le(2)]


# What captions call an attack, where it is not its kind.
TITLES = {"pgd": "PGD", "cw-l2": "CW", "autoattack": "AutoAttack", "noise": "random noise"}


class AttackSettings(Strict):
    """An attack of an evaluation."""

    kind: str

    @property
    def module(self) -> str:
        """The module that runs the attack; only recipes that name the attack depend on its code."""
        return f"robustfeatures.attacks.evaluating.{self.kind.replace('-', '_')}"

    @property
    def title(self) -> str:
        """What captions call the attack."""
        return TITLES.get(self.kind, self.kind)


@dataclass(frozen=True, kw_only=True)
class PGD(AttackSettings):
    """Projected gradient descent (Madry et al., 2018) on the log odds, with several starts and step sizes.

    Each start is combined with each step size. An image is robust if no iterate of any run is misclassified.
    """

    kind: Literal["pgd"]
    steps: PositiveInt
    """The number of steps of each run."""
    relative_step_sizes: Annotated[tuple[RelativeStep, ...], MinLen(1)]
    """The lengths of a step as shares of the radius; each is a run of its own."""
    random_starts: Annotated[int, Ge(0)] = 0
    """The number of runs from random points of the ball, beside the run from the image."""

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        sizes = ",".join(f"{size:g}" for size in self.relative_step_sizes)
        return f"pgd-{self.steps}-by-{sizes}" + (f"-and-{self.random_starts}-random" if self.random_starts else "")


@dataclass(frozen=True, kw_only=True)
class CarliniWagner(AttackSettings):
    """The L2 attack of Carlini and Wagner (2017), which searches for the nearest adversarial example.

    One run serves all eps.
    """

    kind: Literal["cw-l2"]
    searches: PositiveInt = 9
    """The number of values of the constant c that are tried for each image."""
    steps: PositiveInt = 1000
    """The steps of Adam for each value of c."""
    learning_rate: PositiveFloat = 0.01
    """The learning rate of Adam."""
    initial_constant: PositiveFloat = 0.001
    """The first value of c."""

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        return f"cw-l2-{self.searches}x{self.steps}-by-{self.learning_rate:g}-from-{self.initial_constant:g}"


@dataclass(frozen=True, kw_only=True)
class AutoAttack(AttackSettings):
    """AutoAttack (Croce and Hein, 2020) in the code of its authors, the package pyautoattack.

    The standard version has all four parts, APGD-CE, targeted APGD-DLR, targeted FAB and Square, and 5000 queries.
    """

    kind: Literal["autoattack"]
    parts: Annotated[tuple[Literal["apgd-ce", "apgd-t", "fab-t", "square"], ...], MinLen(1)] = (
        "apgd-ce",
        "apgd-t",
        "fab-t",
        "square",
    )
    """The attacks that run, in this order."""
    queries: PositiveInt = 5000
    """The number of queries of Square for each image."""

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        changed = "" if self == AutoAttack(kind="autoattack") else f"-{'-'.join(self.parts)}-{self.queries}"
        return f"autoattack{changed}"


@dataclass(frozen=True, kw_only=True)
class Noise(AttackSettings):
    """Random points on the surface of the ball. If they break images that gradients do not, gradients are masked."""

    kind: Literal["noise"]
    draws: PositiveInt
    """The number of random points for each image."""

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        return f"noise-{self.draws}"


Attack = Annotated[PGD | CarliniWagner | AutoAttack | Noise, Discriminator("kind")]
Attacks = Annotated[tuple[Attack, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Strict):
    """The accuracy of the input `model` on one split of the input `data`, at every radius and every label shift.

    The attacks run one after another; each attacks the images that the earlier ones did not break. An image counts as
    correct only if no attack breaks it.
    """

    split: Split
    """The split that is attacked."""
    norm: NormName
    """The norm of the radii."""
    attacks: Attacks
    """The attacks, one after another."""
    precision: Precision = "float32"
    """The number format of convolutions and matrix products."""
    compile: bool = False
    """Whether torch compiles the network."""
    eps: Annotated[tuple[Radius, ...], MinLen(1)]
    """The radii, in pixels of [0, 1]; 0 is the clean accuracy."""
    label_shifts: Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)] = (0,)
    """The shifts s of the labels (y + s) mod C; 0 is the true label."""
