"""The networks by name; torch is imported only when a network is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from robustfeatures.engine.registry import Entry, find_entry, index_by_name
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


class NetworkFactory(Protocol):
    """Makes a freshly initialised network, which normalises inside and has `representation(images)`."""

    def __call__(self, *, num_classes: int, image_shape: tuple[int, int, int], **width: int) -> Network:
        """A network for images (C, H, W); it takes the keyword `width` if its entry has a width."""
        ...


@dataclass(frozen=True, kw_only=True)
class NetworkEntry(Entry):
    """One network.

    factory: `module:function`, a `NetworkFactory`.
    operations: floating-point operations of one forward of one image (twice the multiply-adds), at `side` and `width`.
    side: height and width in pixels of the images that `operations` are counted for.
    width: the factory's default; None if it takes none.
    smallest_side: images must be at least so many pixels high and wide.
    width_multiple: the width must be a multiple of it, so that every layer has a whole number of filters.
    channels: how many the images must have; None for any.
    """

    factory: str
    operations: float
    side: int
    width: int | None
    smallest_side: int = 1
    width_multiple: int = 1
    channels: int | None = None

    def check_width(self, width: int | None, where: str = "architecture") -> None:
        """Check the width of an architecture in the field `where`.

        Raises:
            UserError: the network has no width, or not this one.
        """
        if width is None:
            return
        if self.width is None:
            raise UserError(f"{where}.width: {self.name!r} has no width")
        if width % self.width_multiple:
            raise UserError(f"{where}.width: {self.name!r} takes a multiple of {self.width_multiple}, not {width}")

    def check_images(self, image_shape: tuple[int, int, int], where: str = "architecture") -> None:
        """Check that an architecture in the field `where` takes images (C, H, W).

        Raises:
            UserError: they are too small, or have another number of channels.
        """
        channels, height, width = image_shape
        if min(height, width) < self.smallest_side:
            raise UserError(
                f"{where}.name: {self.name!r} needs images of at least {self.smallest_side} x {self.smallest_side} "
                f"pixels, not {height} x {width}"
            )
        if self.channels not in (None, channels):
            raise UserError(f"{where}.name: {self.name!r} takes images of {self.channels} channels, not {channels}")


NETWORKS = index_by_name(
    NetworkEntry(
        name="densenet121",
        factory="robustfeatures.models.densenet:densenet121",
        operations=1.78e9,
        side=32,
        width=64,
        # Three poolings by 2.
        smallest_side=8,
        # The growth rate is half the width.
        width_multiple=2,
    ),
    NetworkEntry(
        name="inception-v3",
        factory="robustfeatures.models.inception:inception_v3",
        operations=6.92e9,
        side=32,
        width=192,
        # Two reductions.
        smallest_side=7,
        width_multiple=12,
    ),
    NetworkEntry(name="linear", factory="robustfeatures.models.simple:linear", operations=6.1e4, side=32, width=None),
    NetworkEntry(
        name="mnist-cnn", factory="robustfeatures.models.mnist_cnn:mnist_cnn", operations=2.78e7, side=28, width=32
    ),
    NetworkEntry(
        name="resnet-4x5",
        factory="robustfeatures.models.wide_resnet:resnet_4x5",
        operations=1.85e8,
        side=32,
        width=16,
    ),
    NetworkEntry(
        name="resnet18", factory="robustfeatures.models.resnet:resnet18", operations=1.11e9, side=32, width=64
    ),
    NetworkEntry(
        name="resnet50", factory="robustfeatures.models.resnet:resnet50", operations=2.60e9, side=32, width=64
    ),
    NetworkEntry(
        name="resnet50-imagenet",
        factory="robustfeatures.models.imagenet:resnet50_imagenet",
        operations=8.17e9,
        side=224,
        width=None,
        channels=3,
    ),
    NetworkEntry(
        name="small-cnn",
        factory="robustfeatures.models.small_cnn:small_cnn",
        operations=1.67e5,
        side=8,
        width=16,
        # One pooling by 2.
        smallest_side=2,
    ),
    NetworkEntry(
        name="two-layer-relu",
        factory="robustfeatures.models.simple:two_layer_relu",
        operations=3.2e6,
        side=32,
        width=512,
    ),
    NetworkEntry(
        name="vgg16",
        factory="robustfeatures.models.vgg:vgg16",
        operations=6.26e8,
        side=32,
        width=64,
        # Five poolings by 2.
        smallest_side=32,
    ),
    NetworkEntry(
        name="wrn-34-10",
        factory="robustfeatures.models.wide_resnet:wrn_34_10",
        operations=1.33e10,
        side=32,
        width=160,
    ),
)


def find_network(name: str, field: str = "architecture.name") -> NetworkEntry:
    """The entry of the network that a field names.

    Raises:
        UserError: no network has that name.
    """
    return find_entry(NETWORKS, name, field)


def find_factory(name: str) -> str:
    """`module:function` that makes the network.

    Raises:
        UserError: no network has that name.
    """
    return find_network(name).factory
