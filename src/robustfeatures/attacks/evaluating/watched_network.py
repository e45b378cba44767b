"""The network of an evaluation, watched for what would make its robust accuracy too high."""

from __future__ import annotations

from torch import Tensor, nn

from robustfeatures.errors import UserError


class WatchedNetwork(nn.Module):
    """A network that gets a copy of its images, and remembers whether any of its logits was NaN.

    Networks may work in place, which would change the images of the attack. NaN is no prediction, but `argmax` takes it
    for one: an image would count as broken, or as robust for ever.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._found_nan: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K) of images (N, C, H, W) in [0, 1]."""
        logits: Tensor = self.network(images.clone())
        # Read once, after the attack: each reading waits for the device.
        found = logits.detach().isnan().any()
        self._found_nan = found if self._found_nan is None else self._found_nan | found
        return logits

    def check(self) -> None:
        """Check the logits of all calls so far.

        Raises:
            UserError: some of them were NaN.
        """
        if self._found_nan is not None and bool(self._found_nan):
            raise UserError("model: gives NaN logits for some images in the ball, so its robust accuracy is unknown")
