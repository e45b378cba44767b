"""The attack inside adversarial training; apart from the loop so that standard training does not depend on attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.engine.batches import batch_size
from robustfeatures.engine.prepared import Prepared

if TYPE_CHECKING:
    from robustfeatures.engine.compiling import Compilation
    from robustfeatures.engine.settings import Precision
    from robustfeatures.models.network import Network
    from robustfeatures.training.settings import Adversary


class Attacker:
    """PGD on the network as it is now, in eval mode.

    From the original image, as in not-bugs-2019, Appendix C.3, or from a random start, as in at-odds-2019, Appendix
    A.3. Away from the labels or, `targeted`, towards them.
    """

    def __init__(self, network: Network, adversary: Adversary, precision: Precision, *, targeted: bool = False) -> None:
        self.prepared = Prepared(network, precision=precision)
        self.adversary = adversary
        self.targeted = targeted

    def compile_where_it_pays(self, compilation: Compilation, shape: tuple[int, ...]) -> None:
        """Compile the attack on batches of `shape` (N, C, H, W) as they come from the training, where that pays."""
        rows = -(-shape[0] // _blocks(torch.Size(shape), self.prepared.copy.mean.device))
        self.prepared.compile_where_it_pays(compilation, (rows, *shape[1:]))

    def __call__(self, images: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Adversarial examples of images (N, C, H, W) in [0, 1] with labels (N,), their starts drawn from `seed`."""
        self.prepared.refresh()
        generator = torch.Generator().manual_seed(seed)
        count = _blocks(images.shape, images.device)
        blocks = zip(torch.chunk(images, count), torch.chunk(labels, count), strict=True)
        return torch.cat([self._perturbed(*block, generator) for block in blocks])

    def _perturbed(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        adversary = self.adversary
        return pgd(
            self.prepared,
            images,
            labels,
            norm=adversary.norm,
            eps=adversary.eps,
            step_size=adversary.step_size,
            steps=adversary.steps,
            targeted=self.targeted,
            random_start=adversary.random_start,
            generator=generator,
        )


def _blocks(shape: torch.Size, device: torch.device) -> int:
    """In how many blocks a batch of that shape is attacked."""
    return -(-shape[0] // batch_size(device, shape[1:]))
