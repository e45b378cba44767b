"""The attack inside adversarial training. Its own module, so that standard training does not depend on attacks."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.frozen_network import FrozenNetwork

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision
    from robustfeatures.models.network import Network
    from robustfeatures.training.settings import Adversary


class Attacker:
    """PGD with the current weights of the network, in eval mode.

    The attack starts at the original image (not-bugs-2019, Appendix C.3) or at a random point of the ball
    (at-odds-2019, Appendix A.3). It raises the loss of the labels; a targeted `ProbeAttack` lowers it.
    """

    def __init__(
        self, network: Network, adversary: Adversary, precision: Precision = "float32", *, compile: bool = False
    ) -> None:
        self.frozen_network = FrozenNetwork(network, precision=precision, compile=compile)
        self.adversary = adversary
        self._batch_size: int | None = None

    def __call__(self, images: Tensor, labels: Tensor, seed: int) -> Tensor:
        """Return adversarial examples of images (N, C, H, W) in [0, 1] with labels (N,); `seed` draws random starts."""
        self.frozen_network.refresh()
        # On the images' device: to draw millions of numbers on the host takes longer than some steps on a GPU.
        generator = torch.Generator(images.device).manual_seed(seed)
        # The fields are the arguments of `pgd`.
        settings = asdict(self.adversary)
        if self._batch_size is None:
            # No smaller one is tried if the memory does not suffice, because the update of the weights needs more.
            self._batch_size = fit_batch_size(self.frozen_network, images.device, images.shape[1:]).images
        count = -(-len(images) // self._batch_size)
        blocks = zip(torch.chunk(images, count), torch.chunk(labels, count), strict=True)
        return torch.cat([pgd(self.frozen_network, *block, **settings, generator=generator) for block in blocks])
