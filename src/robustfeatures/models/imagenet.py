"""torchvision's ResNet-50 for photographs of 224 pixels."""

from __future__ import annotations

from torch import nn

from robustfeatures.engine.vision import import_torchvision
from robustfeatures.models.network import Network


def resnet50_imagenet(*, num_classes: int, image_shape: tuple[int, int, int]) -> Network:
    """torchvision's ResNet-50 without its last layer; its representation has 2048 components.

    He, Zhang, Ren and Sun (2016), "Deep Residual Learning for Image Recognition", Table 1, with the stride on the 3x3
    convolution of each unit. It is designed for 3 x 224 x 224 images; other sizes work too. Layers start as in
    torchvision: the convolutions as in `he_normal`, the head as torch's default.
    """
    features = import_torchvision().models.resnet50(weights=None)
    head = nn.Linear(features.fc.in_features, num_classes)
    features.fc = nn.Identity()
    return Network(features, head, 3)
