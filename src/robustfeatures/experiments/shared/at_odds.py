"""Shared by the experiments of at-odds-2019: networks trained against PGD from a random start (Appendix A.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Gt, Le, MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.settings import NORM_NAMES as NORM_NAMES
from robustfeatures.attacks.settings import NormName, check_radii
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Distinct
from robustfeatures.training.settings import Adversary, Training

PAPER = "at-odds-2019"
# Radii of the paper are fractions of 255; published and measured rows are matched after rounding to these digits.
EPS_DIGITS = 4
STANDARD = "standard"

RadiiPerNorm = Annotated[
    Mapping[NormName, Annotated[tuple[PositiveFloat, ...], MinLen(1), Distinct]], MinLen(1), AfterValidator(check_radii)
]


@dataclass(frozen=True, kw_only=True)
class AdversarialTrainings(Strict):
    """The standard training, and the attack of its adversarial versions."""

    training: str = "standard"
    """The standard training."""
    steps: PositiveInt = 7
    """The steps of the attack in adversarial training."""
    relative_step_size: Annotated[float, Gt(0), Le(1)] = 0.25
    """The length of a step as a share of the radius."""


def training_name(norm: NormName, eps: float) -> str:
    """The name of a training: "standard", or norm and radius."""
    return f"{norm}-{eps:.4g}" if eps > 0 else STANDARD


def make_training(
    pieces: Pieces, settings: AdversarialTrainings, norm: NormName, eps: float, *, natural: float = 0.0
) -> Training:
    """The standard training, or for eps > 0 the adversarial one; `natural` is the share of natural images per batch."""
    plain = pieces.training(settings.training)
    if eps == 0:
        return plain
    step_size = settings.relative_step_size * eps
    attack = Adversary(norm=norm, eps=eps, step_size=step_size, steps=settings.steps, random_start=True)
    return replace(plain, adversary=attack, natural=natural)


def make_network(
    pieces: Pieces, settings: AdversarialTrainings, seed: int, norm: NormName, eps: float, *, natural: float = 0.0
) -> Recipe:
    """The recipe of a network trained so on D."""
    data = pieces.data()
    label = f"{data.label}-{settings.training}-against-{training_name(norm, eps)}" + ("-half" if natural else "")
    chosen = make_training(pieces, settings, norm, eps, natural=natural)
    return pieces.model(label, chosen, seed, {"data": data})


def round_eps(eps: float) -> float:
    """The radius as tables show it."""
    return round(eps, EPS_DIGITS)
