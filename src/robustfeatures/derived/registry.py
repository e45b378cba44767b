"""The methods of derived sets by kind; a method's module is imported only when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from robustfeatures.derived.settings import (
    Inversion,
    LossGradient,
    Method,
    Misclassified,
    TargetedAttack,
    Transferring,
    UntargetedAttack,
)
from robustfeatures.engine.registry import Entry, check_kinds, index_by_name

if TYPE_CHECKING:
    import torch
    from torch import nn

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.derivation import Derivation

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class DeriveFunction(Protocol[S_contra]):
    """The function `derive` of a method's module."""

    def __call__(
        self, network: nn.Module, original: ImageDataset, method: S_contra, *, seed: int, device: torch.device
    ) -> Derivation:
        """Derive a set from a split with a frozen network.

        Raises:
            UserError: the method finds no image in the split, or does not fit it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class MethodEntry(Entry, Generic[S]):
    """One way of deriving a set.

    settings: the settings in a study file.
    module: the module whose function `derive` is a `DeriveFunction`.
    forwards: the work for an image, in forward passes, from the settings; a backward pass to the image counts one more.
    selects: whether the images are unchanged ones, which the network selects, so that no job makes only some of them.
    """

    settings: type[S]
    module: str
    forwards: Callable[[S], float]
    selects: bool = False


METHODS: dict[str, MethodEntry[Any]] = index_by_name(
    MethodEntry(
        name="inversion",
        settings=Inversion,
        module="robustfeatures.derived.inversion",
        # The representation of the image itself comes first.
        forwards=lambda method: 1 + 2 * method.steps,
    ),
    MethodEntry(
        name="targeted-attack",
        settings=TargetedAttack,
        module="robustfeatures.derived.targeted_attack",
        forwards=lambda method: 2 * method.steps,
    ),
    MethodEntry(
        name="untargeted-attack",
        settings=UntargetedAttack,
        module="robustfeatures.derived.untargeted_attack",
        forwards=lambda method: 2 * method.steps,
    ),
    MethodEntry(
        name="loss-gradient",
        settings=LossGradient,
        module="robustfeatures.derived.loss_gradient",
        forwards=lambda method: 2,
    ),
    MethodEntry(
        name="errors",
        settings=Misclassified,
        module="robustfeatures.derived.misclassified",
        forwards=lambda method: 1,
        selects=True,
    ),
    MethodEntry(
        name="transferring",
        settings=Transferring,
        module="robustfeatures.derived.transferring",
        forwards=lambda method: 1,
        selects=True,
    ),
)
check_kinds(METHODS, {name: entry.settings for name, entry in METHODS.items()}, Method)
