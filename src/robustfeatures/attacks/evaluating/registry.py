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
from robustfeatures.engine.registry import Entry, check_kinds, find_entry, index_by_name

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
    passes: the number of forward and backward passes for an image that is never broken, given the settings and the
        number of radii; a forward pass alone counts a third.
    norms: the norms that the attack supports.
    """

    settings: type[S]
    passes: Callable[[S, int], float]
    norms: tuple[NormName, ...] = ("l2", "linf")


def _pgd_passes(settings: PGD, radii: int) -> float:
    return radii * (settings.steps + 1) * len(settings.relative_step_sizes) * (1 + settings.random_starts)


def _autoattack_passes(settings: AutoAttack, radii: int) -> float:
    """100 iterations for the label or for each of nine targets; FAB adds forward passes."""
    parts = {"apgd-ce": 100.0, "apgd-t": 900.0, "fab-t": 1200.0, "square": settings.queries / 3}
    return radii * sum(parts[part] for part in settings.parts)


ATTACKS: dict[str, AttackEntry[Any]] = index_by_name(
    AttackEntry(name="pgd", settings=PGD, passes=_pgd_passes),
    # One search for all radii.
    AttackEntry(
        name="cw-l2",
        settings=CarliniWagner,
        passes=lambda settings, radii: settings.searches * settings.steps,
        norms=("l2",),
    ),
    AttackEntry(name="autoattack", settings=AutoAttack, passes=_autoattack_passes),
    AttackEntry(name="noise", settings=Noise, passes=lambda settings, radii: radii * settings.draws / 3),
)
check_kinds(ATTACKS, {name: entry.settings for name, entry in ATTACKS.items()}, Attack)


def find_attack(kind: str, field: str = "attacks.kind") -> AttackEntry[Any]:
    """Find the entry of the attack of this kind; `field` names the field in the error message.

    Raises:
        UserError: no attack has this kind.
    """
    return find_entry(ATTACKS, kind, field)
