"""The settings of derived sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, MinLen
from pydantic import Discriminator

from robustfeatures.attacks.settings import PGDSettings
from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Precision, Seed, Strict

Target = Literal["random", "next"] | Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class Inversion(Strict):
    """D_R and D_NR: match the representation of the image, from another image or from noise (not-bugs-2019, C.4)."""

    kind: Literal["inversion"]
    start: Literal["images", "noise"]
    """Where the search starts: at another image of the split, drawn at random, or at Gaussian noise."""
    step_size: PositiveFloat
    """The L2 length of one step of normalised gradient descent, in pixels of [0, 1]."""
    steps: PositiveInt
    """The number of steps."""
    noise_deviation: PositiveFloat | None = None
    """The standard deviation of the noise, whose mean is 1/2; 1/4 if it is not given. The paper has no number. The
    code of a later paper of the same authors has 1/20 (Engstrom et al., 2019, "Adversarial Robustness as a Prior for
    Learned Representations")."""


@dataclass(frozen=True, kw_only=True)
class TargetedAttack(PGDSettings):
    """D_rand and D_det: targeted PGD, relabelled with the target (not-bugs-2019, C.5)."""

    kind: Literal["targeted-attack"]
    target: Target
    """The target class: `random` draws it uniformly, `next` is (y + 1) mod C, a number is one class for all."""


@dataclass(frozen=True, kw_only=True)
class UntargetedAttack(PGDSettings):
    """Untargeted PGD; labels stay. With a large radius, the examples of at-odds-2019, Section 3."""

    kind: Literal["untargeted-attack"]


@dataclass(frozen=True, kw_only=True)
class LossGradient(Strict):
    """The gradient of the loss by each image, as an image; zero is grey (at-odds-2019, Figures 2 and 10)."""

    kind: Literal["loss-gradient"]
    deviations: PositiveFloat = 3.0
    """Values are clipped at so many standard deviations of the image's own gradient, on either side."""


@dataclass(frozen=True, kw_only=True)
class Misclassified(Strict):
    """The images that the source misclassifies, unchanged, with its predictions as labels.

    Wallace (2019), "Learning from Incorrectly Labeled Data", response 6 in "A Discussion of 'Adversarial Examples Are
    Not Bugs, They Are Features'" (distill.pub).
    """

    kind: Literal["errors"]


@dataclass(frozen=True, kw_only=True)
class Transferring(Strict):
    """The derived images that another network classifies as their label, or the others (two-pathways-2021, 3)."""

    kind: Literal["transferring"]
    transfers: bool
    """Whether the images that transfer are kept, or the others."""


Method = Annotated[
    Inversion | TargetedAttack | UntargetedAttack | LossGradient | Misclassified | Transferring, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Derived(Strict):
    """A data set made from the input `data` with the network `source`; only the listed splits are derived."""

    method: Method
    """How images and labels are made."""
    seed: Seed
    """The seed of all draws."""
    precision: Precision = "float32"
    """The number format of convolutions and matrix products."""
    compile: bool = False
    """Whether torch compiles the network."""
    splits: Annotated[tuple[Split, ...], MinLen(1)]
    """The splits that are derived."""
