"""The convolutional network of TensorFlow's MNIST tutorial."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from robustfeatures.models.network import Network


def mnist_cnn(*, num_classes: int, image_shape: tuple[int, int, int], width: int = 32) -> Network:
    """Two 5x5 convolutions, each pooled by 2, and a hidden layer; its representation has 32 `width` = 1024 components.

    Tsipras, Santurkar, Engstrom, Turner and Madry (2019), "Robustness May Be at Odds with Accuracy", Appendix A.2: "the
    simple convolution architecture from the TensorFlow tutorial", without its dropout, as in the code they refer to
    (MadryLab's mnist_challenge): `width` = 32 and 64 filters, 1024 hidden units, ReLU throughout. All weights start
    from a normal distribution of standard deviation 0.1, cut off at 0.2, all biases at 0.1, as there. Any image size
    and number of channels is possible; halving an odd side rounds up.
    """
    channels, height, image_width = image_shape
    # Each side is halved twice, rounded up.
    pixels = ((height + 3) // 4) * ((image_width + 3) // 4)
    features = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, width, 5, padding=2),
            # Pooling before the ReLU gives the same values and gradients, because the ReLU is monotonic, in less time.
            pool1=nn.MaxPool2d(2, ceil_mode=True),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(width, 2 * width, 5, padding=2),
            pool2=nn.MaxPool2d(2, ceil_mode=True),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(2 * width * pixels, 32 * width),
            relu3=nn.ReLU(),
        )
    )
    network = Network(features, nn.Linear(32 * width, num_classes), channels)
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
            nn.init.constant_(layer.bias, 0.1)  # type: ignore[arg-type]
    return network
