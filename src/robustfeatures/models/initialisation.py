"""The initialisation of most convolutional networks."""

from __future__ import annotations

from torch import nn


def he_normal(module: nn.Module) -> None:
    """Draw the weights of every convolution from N(0, 2 / (filters * kernel area)) and set its biases to 0.

    He, Zhang, Ren and Sun (2015), "Delving Deep into Rectifiers", Section 2.2, in the form that keeps the variance of
    the gradients. Batch norms keep scale 1 and shift 0.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
