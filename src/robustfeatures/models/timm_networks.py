"""Networks of the library timm (Wightman, 2019), by name: `timm:resnet26`. Nothing is downloaded."""

from __future__ import annotations

from importlib import import_module

from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network
from robustfeatures.models.own import to_network


def create_timm(name: str, *, num_classes: int, image_shape: tuple[int, int, int]) -> Network:
    """timm's network of this name, newly initialised; its representation is the input of the last linear layer.

    Raises:
        UserError: timm has no such network, or it does not accept these images.
    """
    # timm imports torchvision, whose compiled operators may not fit the installed torch.
    import_torchvision()
    timm = import_module("timm")
    if name not in timm.list_models():
        raise UserError(f"architecture: timm has no network {name!r}; timm.list_models() lists them")
    try:
        module = timm.create_model(name, pretrained=False, num_classes=num_classes, in_chans=image_shape[0])
    # timm documents no errors.
    except Exception as error:
        raise UserError(f"architecture: timm:{name}: {type(error).__name__}: {error}") from error
    return to_network(module, layer=None, name=f"timm:{name}", num_classes=num_classes, image_shape=image_shape)
