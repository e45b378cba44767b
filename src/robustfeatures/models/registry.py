"""The names of the networks and the factories behind them; torch is imported only when a network is made."""

from __future__ import annotations

from robustfeatures.errors import UserError, suggestion

ARCHITECTURES = {
    "densenet121": "robustfeatures.models.densenet:densenet121",
    "inception-v3": "robustfeatures.models.inception:inception_v3",
    "linear": "robustfeatures.models.simple:linear",
    "mnist-cnn": "robustfeatures.models.mnist_cnn:mnist_cnn",
    "resnet-4x5": "robustfeatures.models.wide_resnet:resnet_4x5",
    "resnet18": "robustfeatures.models.resnet:resnet18",
    "resnet50": "robustfeatures.models.resnet:resnet50",
    "resnet50-imagenet": "robustfeatures.models.imagenet:resnet50_imagenet",
    "small-cnn": "robustfeatures.models.small_cnn:small_cnn",
    "two-layer-relu": "robustfeatures.models.simple:two_layer_relu",
    "vgg16": "robustfeatures.models.vgg:vgg16",
    "wrn-34-10": "robustfeatures.models.wide_resnet:wrn_34_10",
}


def factory_name(architecture: str, field: str = "architecture") -> str:
    """`<module>:<function>` of the architecture in a field.

    Raises:
        UserError: no architecture has that name.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"{field}: {architecture!r} is unknown{suggestion(architecture, ARCHITECTURES)}")
    return ARCHITECTURES[architecture]
