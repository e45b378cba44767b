"""The settings of an evaluation and of its attacks, by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Discriminator

from robustfeatures.attacks.settings import NormName, Radius
from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import Precision, Strict

Count = Annotated[int, Gt(0)]
Positive = Annotated[float, Gt(0)]
RelativeStep = Annotated[float, Gt(0), Le(2)]


class AttackSettings(Strict):
    """An attack of an evaluation."""

    kind: str

    @property
    def module(self) -> str:
        """The module that runs the attack; only recipes that name the attack depend on its code."""
        return f"robustfeatures.attacks.evaluating.{self.kind.replace('-', '_')}"


@dataclass(frozen=True, kw_only=True)
class PGD(AttackSettings):
    """Projected gradient descent on the cross-entropy (Madry et al., 2018), with several starts and step sizes.

    The first run starts at the image; `random_starts` more start at random points of the ball. Each start is combined
    with each step size, `relative_step_sizes` * eps. An image is robust if no iterate of any run is misclassified.
    """

    kind: Literal["pgd"]
    steps: Count
    relative_step_sizes: Annotated[tuple[RelativeStep, ...], MinLen(1)]
    random_starts: Annotated[int, Ge(0)] = 0

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        sizes = ",".join(f"{size:g}" for size in self.relative_step_sizes)
        return f"pgd-{self.steps}-by-{sizes}" + (f"-and-{self.random_starts}-random" if self.random_starts else "")


@dataclass(frozen=True, kw_only=True)
class CarliniWagner(AttackSettings):
    """The L2 attack of Carlini and Wagner (2017), which searches for the nearest adversarial example.

    One run serves all eps. It tries `searches` values of the constant c for each image, starting with
    `initial_constant`, each with `steps` steps of Adam.
    """

    kind: Literal["cw-l2"]
    searches: Count = 9
    steps: Count = 1000
    learning_rate: Positive = 0.01
    initial_constant: Positive = 0.001

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        return f"cw-l2-{self.searches}x{self.steps}-by-{self.learning_rate:g}-from-{self.initial_constant:g}"


@dataclass(frozen=True, kw_only=True)
class AutoAttack(AttackSettings):
    """The standard version of AutoAttack (Croce and Hein, 2020), in the code of its authors: the package pyautoattack.

    Its parts run one after another: APGD-CE, targeted APGD-DLR, targeted FAB, and Square with `queries` queries. The
    standard version has all four parts and 5000 queries.
    """

    kind: Literal["autoattack"]
    parts: Annotated[tuple[Literal["apgd-ce", "apgd-t", "fab-t", "square"], ...], MinLen(1)] = (
        "apgd-ce",
        "apgd-t",
        "fab-t",
        "square",
    )
    queries: Count = 5000

    @property
    def name(self) -> str:
        """The name of the attack in rows; it contains all settings."""
        changed = "" if self == AutoAttack(kind="autoattack") else f"-{'-'.join(self.parts)}-{self.queries}"
        return f"autoattack{changed}"


@dataclass(frozen=True, kw_only=True)
class Noise(AttackSettings):
    """Random points on the surface of the ball. If they break images that gradients do not, gradients are masked."""

    kind: Literal["noise"]
    draws: Count

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
    norm: NormName
    attacks: Attacks
    precision: Precision = "float32"
    compile: bool = False
    eps: Annotated[tuple[Radius, ...], MinLen(1)]
    label_shifts: Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)] = (0,)
