"""The networks by name; torch is imported only when a network is created."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from robustfeatures.engine.registry import Entry, find_entry, index_by_name
from robustfeatures.errors import UserError
from robustfeatures.models.own_files import find_file, parse_own

if TYPE_CHECKING:
    from robustfeatures.models.network import Network


class NetworkFactory(Protocol):
    """Creates a newly initialised network."""

    def __call__(self, *, num_classes: int, image_shape: tuple[int, int, int], **width: int) -> Network:
        """Create a network for images of `image_shape` (C, H, W); `width` is given only if the entry has a width."""
        ...


@dataclass(frozen=True, kw_only=True)
class NetworkEntry(Entry):
    """One network.

    factory: `module:function`, a `NetworkFactory`.
    operations: floating-point operations of one image's forward pass (twice the multiply-adds), at `side` and `width`.
    side: the height and width, in pixels, of the images in the count of `operations`.
    width: the factory's default width; None if the network has no width.
    smallest_side: the smallest height and width of images, in pixels.
    width_multiple: the width must be a multiple of this number, so that every layer has a whole number of filters.
    channels: the number of channels of the images; None for any.
    """

    factory: str
    operations: float
    side: int
    width: int | None
    smallest_side: int = 1
    width_multiple: int = 1
    channels: int | None = None

    def check_width(self, width: int | None, where: str = "architecture") -> None:
        """Check the width of an architecture; `where` is its field in the study.

        Raises:
            UserError: the network has no width, or does not accept this one.
        """
        if width is None:
            return
        if self.width is None:
            raise UserError(f"{where}.width: {self.name!r} has no width")
        if width < 1:
            raise UserError(f"{where}.width: {width} is not above 0")
        if width % self.width_multiple:
            raise UserError(f"{where}.width: {self.name!r} takes a multiple of {self.width_multiple}, not {width}")

    def check_images(self, image_shape: tuple[int, int, int], where: str = "architecture") -> None:
        """Check that the network accepts images (C, H, W); `where` is the architecture's field in the study.

        Raises:
            UserError: the images are too small, or have another number of channels.
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
        name="resnet9",
        factory="robustfeatures.models.resnet9:resnet9",
        operations=7.59e8,
        side=32,
        width=64,
        # Three poolings by 2.
        smallest_side=8,
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


@dataclass(frozen=True, kw_only=True)
class OwnEntry(NetworkEntry):
    """A network that the user or the library timm brings, so that its operations are not known: those of ResNet-18."""

    operations: float = 1.11e9
    side: int = 32
    width: int | None = None
    has_width: bool = False

    def check_width(self, width: int | None, where: str = "architecture") -> None:
        """Check the width of an architecture, which only the user's own function may take."""
        if not self.has_width:
            super().check_width(width, where)


def find_network(name: str, field: str = "architecture.name") -> NetworkEntry:
    """The entry of the network with this name; `field` is the field of the study that names it.

    The name is that of a registered network, `<file>.py:<function>`, or `timm:<name>`.

    Raises:
        UserError: no network has this name, or timm is not installed.
    """
    if parse_own(name) is not None:
        return OwnEntry(name=name, factory=f"robustfeatures.models.own:create_from_file:{name}", has_width=True)
    if name.startswith("timm:"):
        if find_spec("timm") is None:
            raise UserError(f"{field}: {name!r} needs the library timm: pip install 'robustfeatures[timm]'")
        return OwnEntry(name=name, factory=f"robustfeatures.models.timm_networks:create_timm:{name[5:]}")
    return find_entry(NETWORKS, name, field)


def find_code(name: str) -> set[str]:
    """The code that makes the network: its factory as `module:function`, and the path of the user's own file.

    Raises:
        UserError: no network has this name.
    """
    own = parse_own(name)
    return {find_network(name).factory} | (set() if own is None else {str(find_file(own.file))})
