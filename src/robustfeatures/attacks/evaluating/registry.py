"""The attacks of evaluations by kind; the module of an attack is imported only when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from robustfeatures.attacks.evaluating.settings import (
    PGD,
    Attack,
    AttackSettings,
    AutoAttack,
    CarliniWagner,
    Noise,
)
from robustfeatures.attacks.settings import NormName
from robustfeatures.engine.registry import Entry, check_kinds, index_by_name

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.task import AttackTask, Outcome

S = TypeVar("S", bound=AttackSettings)
S_contra = TypeVar("S_contra", bound=AttackSettings, contravariant=True)


class EvaluatingAttack(Protocol[S_contra]):
    """The function `attack` in the module of an attack."""

    def __call__(self, task: AttackTask, settings: S_contra) -> Outcome:
        """Find which of the images are robust at which radii."""
        ...


@dataclass(frozen=True, kw_only=True)
class AttackEntry(Entry, Generic[S]):
    """One attack of an evaluation.

    settings: the settings in a study file; their `module`, named after the kind, has an `EvaluatingAttack` `attack`.
    forwards: the work for an image that is never broken, in forward passes, given the settings and the number of radii;
        a backward pass to the image counts one more.
    norms: the norms that the attack supports.
    """

    settings: type[S]
    forwards: Callable[[S, int], float]
    norms: tuple[NormName, ...] = ("l2", "linf")


def _pgd_forwards(settings: PGD, radii: int) -> float:
    """Each run also evaluates its last iterate."""
    return 2 * radii * (settings.steps + 1) * len(settings.relative_step_sizes) * (1 + settings.random_starts)


def _autoattack_forwards(settings: AutoAttack, radii: int) -> float:
    """100 iterations for the label or for each of nine targets. APGD begins with a gradient; FAB adds forwards."""
    parts = {"apgd-ce": 2 * 101, "apgd-t": 9 * 2 * 101, "fab-t": 9 * 3 * 100, "square": settings.queries}
    return radii * sum(parts[part] for part in settings.parts)


ATTACKS: dict[str, AttackEntry[Any]] = index_by_name(
    AttackEntry(name="pgd", settings=PGD, forwards=_pgd_forwards),
    # One search for all radii, after a look at the gradient.
    AttackEntry(
        name="cw-l2",
        settings=CarliniWagner,
        forwards=lambda settings, radii: 2 * (1 + settings.searches * settings.steps),
        norms=("l2",),
    ),
    AttackEntry(name="autoattack", settings=AutoAttack, forwards=_autoattack_forwards),
    AttackEntry(name="noise", settings=Noise, forwards=lambda settings, radii: radii * settings.draws),
)
check_kinds(ATTACKS, {name: entry.settings for name, entry in ATTACKS.items()}, Attack)
