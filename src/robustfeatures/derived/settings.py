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
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class TargetedAttack(PGDSettings):
    """D_rand and D_det: targeted PGD, relabelled with the target (not-bugs-2019, C.5).

    The target is drawn uniformly ("random"), is (y + 1) mod C ("next"), or is one class for all.
    """

    kind: Literal["targeted-attack"]
    target: Target


@dataclass(frozen=True, kw_only=True)
class UntargetedAttack(PGDSettings):
    """Untargeted PGD; labels stay. With a large radius, the examples of at-odds-2019, Section 3."""

    kind: Literal["untargeted-attack"]


@dataclass(frozen=True, kw_only=True)
class LossGradient(Strict):
    """The gradient of the loss with respect to each image, as an image (at-odds-2019, Figures 2 and 10).

    Values are clipped at plus and minus `deviations` standard deviations of the image's own gradient; zero is grey.
    """

    kind: Literal["loss-gradient"]
    deviations: PositiveFloat = 3.0


@dataclass(frozen=True, kw_only=True)
class Misclassified(Strict):
    """The images that the source misclassifies, unchanged, with its predictions as labels.

    Wallace (2019), "Learning from Incorrectly Labeled Data", response 6 in "A Discussion of 'Adversarial Examples Are
    Not Bugs, They Are Features'" (distill.pub).
    """

    kind: Literal["errors"]


@dataclass(frozen=True, kw_only=True)
class Transferring(Strict):
    """The derived images that the source, another network, classifies as their label; or the other derived images.

    two-pathways-2021, Section 3.
    """

    kind: Literal["transferring"]
    transfers: bool


Method = Annotated[
    Inversion | TargetedAttack | UntargetedAttack | LossGradient | Misclassified | Transferring, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Derived(Strict):
    """A data set made from the input `data` with the network `source`; only the listed splits are derived."""

    method: Method
    seed: Seed
    precision: Precision = "float32"
    compile: bool = False
    splits: Annotated[tuple[Split, ...], MinLen(1)]
