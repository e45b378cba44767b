"""The attack inside adversarial training; apart from the loop so that standard training does not depend on attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from robustfeatures.attacks.pgd import pgd

if TYPE_CHECKING:
    from robustfeatures.recipes.parameters import Adversary


def perturb(model: nn.Module, images: Tensor, labels: Tensor, adversary: Adversary) -> Tensor:
    """PGD from the original image, as in not-bugs-2019, Appendix C.3."""
    return pgd(
        model,
        images,
        labels,
        norm=adversary.norm,
        eps=adversary.eps,
        step_size=adversary.step_size,
        steps=adversary.steps,
    )
