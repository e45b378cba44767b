"""The registered networks: parameters against published counts, shapes, tracing, and errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import GlobalAveragePool, Network
from robustfeatures.models.registry import NETWORKS

CIFAR = (3, 32, 32)
MNIST = (1, 28, 28)
# Narrow variants, so that the tests are fast; None if a network has no width or is already small.
NARROW = {
    "densenet121": 8,
    "inception-v3": 12,
    "linear": None,
    "mnist-cnn": 4,
    "resnet-4x5": 5,
    "resnet18": 8,
    "resnet50": 4,
    "resnet50-imagenet": None,
    "resnet9": 8,
    "small-cnn": 4,
    "two-layer-relu": 16,
    "vgg16": 8,
    "wrn-34-10": 8,
}


def parameters(architecture: str, num_classes: int, shape: tuple[int, int, int]) -> int:
    with torch.device("meta"):
        network = create(architecture, num_classes=num_classes, image_shape=shape)
    return sum(parameter.numel() for parameter in network.parameters())


def narrow(architecture: str, shape: tuple[int, int, int] = CIFAR, num_classes: int = 7) -> Network:
    torch.manual_seed(0)
    return create(architecture, num_classes=num_classes, image_shape=shape, width=NARROW[architecture])


def disturb_batch_norms(network: nn.Module) -> nn.Module:
    """Set eval mode, and give each channel other batch norms, so that a lost or exchanged one changes the logits."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        elif isinstance(module, nn.Conv2d):
            # In eval mode batch norms do not compensate small weights, and the logits would not depend on the images.
            nn.init.kaiming_normal_(module.weight)
    return network.eval()


@pytest.mark.parametrize("architecture", NETWORKS)
def test_no_average_counts_what_lies_outside_the_image(architecture: str) -> None:
    """Compiled, an average with `ceil_mode` and `count_include_pad` has wrong gradients (pytorch/pytorch 198119)."""
    with torch.device("meta"):
        network = create(architecture, num_classes=7, image_shape=MNIST if architecture == "mnist-cnn" else CIFAR)
    pools = [module for module in network.modules() if isinstance(module, nn.AvgPool2d) and module.ceil_mode]
    assert not any(pool.count_include_pad for pool in pools)
    assert bool(pools) == (architecture == "resnet-4x5")


@pytest.mark.parametrize(
    ("architecture", "published"),
    [
        # Sun et al. (2024), "NeuralFuse", Table 7, CIFAR-10: ResNet18, ResNet50 and VGG16.
        ("resnet18", 11_173_962),
        ("resnet50", 23_520_842),
        ("vgg16", 14_728_266),
        # The README of flax-cifar (J. Valmadre), which follows kuangliu's pytorch-cifar: DenseNet121-32.
        ("densenet121", 6_956_298),
        # Li et al. (2020), "Towards Practical Lottery Ticket Hypothesis for Adversarial Training", Table 4.
        ("wrn-34-10", 46_160_474),
    ],
)
def test_published_counts_for_cifar_10(architecture: str, published: int) -> None:
    assert parameters(architecture, 10, CIFAR) == published


def test_the_published_count_of_torchvision_resnet50() -> None:
    # torchvision's documentation, ResNet50_Weights.IMAGENET1K_V2, num_params.
    assert parameters("resnet50-imagenet", 1000, (3, 224, 224)) == 25_557_032


def test_the_count_of_inception_v3_from_torchvisions() -> None:
    # torchvision's documentation, Inception_V3_Weights.IMAGENET1K_V1, num_params.
    imagenet = 27_161_264
    # Its stem, (inputs, filters, kernel area) of each convolution, whose batch norm has two parameters per filter.
    stem = sum(i * f * k + 2 * f for i, f, k in [(3, 32, 9), (32, 32, 9), (32, 64, 9), (64, 80, 1), (80, 192, 9)])
    auxiliary = 768 * 128 + 2 * 128 + 128 * 768 * 25 + 2 * 768 + 768 * 1000 + 1000
    heads = 2048 * 1000 + 1000 - (2048 * 10 + 10)
    expected = imagenet - stem - auxiliary - heads + 3 * 192 * 9 + 2 * 192
    # The README of huyvnphan's PyTorch_CIFAR10, whose form this is, says 21.640 M.
    assert expected == pytest.approx(21.640e6, rel=1e-4)
    assert parameters("inception-v3", 10, CIFAR) == expected


def test_the_count_of_the_four_group_resnet() -> None:
    # Tsipras et al. (2019), Appendix A.2: 4 groups of 5 units with (16, 16, 32, 64) filters; no count is published.
    expected, channels = 3 * 16 * 9, 16
    for filters in (16, 16, 32, 64):
        for _ in range(5):
            expected += 2 * channels + 9 * channels * filters + 2 * filters + 9 * filters * filters
            channels = filters
    assert parameters("resnet-4x5", 10, CIFAR) == expected + 2 * 64 + 64 * 10 + 10


def test_the_count_of_the_mnist_cnn() -> None:
    # The layers of TensorFlow's tutorial, with the sum that course notes give for it.
    expected = (25 * 32 + 32) + (25 * 32 * 64 + 64) + (7 * 7 * 64 * 1024 + 1024) + (1024 * 10 + 10)
    assert parameters("mnist-cnn", 10, MNIST) == expected == 3_274_634


def test_the_counts_of_the_simplest() -> None:
    assert parameters("linear", 10, MNIST) == 784 * 10 + 10
    assert parameters("two-layer-relu", 10, MNIST) == 784 * 512 + 512 + 512 * 10 + 10


def test_every_architecture_is_tested() -> None:
    assert set(NARROW) == set(NETWORKS)


@pytest.mark.parametrize("architecture", sorted(set(NETWORKS) - {"resnet50-imagenet"}))
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 64, 64), (2, 36, 45)])
def test_any_number_of_channels_and_many_sizes(architecture: str, shape: tuple[int, int, int]) -> None:
    network = narrow(architecture, shape).eval()
    images = torch.rand(2, *shape)
    representation = network.representation(images)
    assert representation.shape == (2, network.head.in_features)
    assert network(images).shape == (2, 7)
    torch.testing.assert_close(network(images), network.head(representation))


@pytest.mark.parametrize(
    "architecture", ["resnet18", "resnet50", "resnet9", "densenet121", "wrn-34-10", "resnet-4x5", "mnist-cnn"]
)
def test_images_of_8_pixels(architecture: str) -> None:
    assert narrow(architecture, (1, 8, 8)).eval()(torch.rand(2, 1, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize(
    ("architecture", "components"),
    [
        ("resnet18", 64),
        ("resnet50", 128),
        ("resnet9", 64),
        ("vgg16", 64),
        ("densenet121", 128),
        ("inception-v3", 128),
        ("wrn-34-10", 32),
        ("resnet-4x5", 20),
        ("mnist-cnn", 128),
        ("two-layer-relu", 16),
        ("linear", 3072),
    ],
)
def test_the_width_scales_the_representation(architecture: str, components: int) -> None:
    assert narrow(architecture).head.in_features == components


@pytest.mark.parametrize("architecture", sorted(NETWORKS))
def test_batch_norms_fold_into_convolutions(architecture: str) -> None:
    network = disturb_batch_norms(narrow(architecture))
    images = torch.rand(4, *CIFAR)
    network.set_normalisation(torch.rand(3), torch.rand(3) + 0.5)
    folded = fuse(network)
    with torch.no_grad():
        expected, logits = network(images), folded(images)
    assert (logits - expected).norm() / expected.norm() < 1e-4
    norms = [sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) for net in (network, folded)]
    if norms[0]:
        assert norms[1] < norms[0]


def test_the_hidden_layer_is_the_representation() -> None:
    network = narrow("two-layer-relu", (1, 4, 4))
    images = torch.rand(3, 1, 4, 4)
    weight, bias = network.features[1].weight, network.features[1].bias
    torch.testing.assert_close(network.representation(images), (images.view(3, 16) @ weight.T + bias).clamp_min(0))
    linear = narrow("linear", (1, 4, 4))
    torch.testing.assert_close(linear.representation(images), images.view(3, 16))


def test_the_four_group_resnet_computes_what_its_docstring_says() -> None:
    network = disturb_batch_norms(narrow("resnet-4x5"))
    weights = network.state_dict()

    def activated(images: Tensor, name: str) -> Tensor:
        parts = [weights[f"features.{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        normal = F.batch_norm(images, *parts)
        return torch.where(normal < 0, 0.1 * normal, normal)

    images = torch.rand(2, *CIFAR)
    hidden = F.conv2d(images, weights["features.conv1.weight"], padding=1)
    for group in (1, 2, 3, 4):
        for unit in range(5):
            name = f"layer{group}.{unit}"
            stride = 2 if group > 2 and unit == 0 else 1
            first = activated(hidden, f"{name}.bn1")
            inner = F.conv2d(first, weights[f"features.{name}.conv1.weight"], stride=stride, padding=1)
            inner = F.conv2d(activated(inner, f"{name}.bn2"), weights[f"features.{name}.conv2.weight"], padding=1)
            beside = first if name == "layer1.0" else hidden
            if stride == 2:
                halved = beside.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean(dim=(3, 5))
                new = inner.shape[1] - halved.shape[1]
                zeros = torch.zeros(2, new, *halved.shape[2:])
                beside = torch.cat([zeros[:, : new // 2], halved, zeros[:, new // 2 :]], dim=1)
            hidden = beside + inner
    expected = activated(hidden, "bn1").mean(dim=(2, 3))
    with torch.no_grad():
        torch.testing.assert_close(network.representation(images), expected, rtol=1e-4, atol=1e-4)


def test_the_mnist_cnn_computes_what_the_tutorial_does() -> None:
    network = create("mnist-cnn", num_classes=10, image_shape=MNIST, width=4)
    names = [name for name in network.state_dict() if name not in ("mean", "std")]
    conv1, bias1, conv2, bias2, full1, bias3, full2, bias4 = (network.state_dict()[name] for name in names)
    images = torch.rand(2, *MNIST)
    hidden = F.max_pool2d(F.conv2d(images, conv1, bias1, padding=2).clamp_min(0), 2)
    hidden = F.max_pool2d(F.conv2d(hidden, conv2, bias2, padding=2).clamp_min(0), 2)
    hidden = (hidden.reshape(2, 8 * 7 * 7) @ full1.T + bias3).clamp_min(0)
    with torch.no_grad():
        torch.testing.assert_close(network(images), hidden @ full2.T + bias4)


def test_initialisation() -> None:
    torch.manual_seed(0)
    # Forward gain 2 / (filters * kernel area); torch's default would be 1 / (3 * inputs * kernel area).
    weight = create("resnet18", num_classes=10, image_shape=CIFAR).features.layer3[0].conv1.weight
    assert weight.var().item() == pytest.approx(2 / (256 * 9), rel=0.02)
    hidden = create("mnist-cnn", num_classes=10, image_shape=MNIST).features.fc1
    # A normal distribution cut off at twice its deviation keeps 0.774 of its variance.
    assert hidden.weight.var().item() == pytest.approx(0.774 * 0.01, rel=0.01)
    assert hidden.weight.abs().max().item() <= 0.2
    assert torch.equal(hidden.bias, torch.full((1024,), 0.1))


@pytest.mark.parametrize(
    ("architecture", "shape", "width", "message"),
    [
        ("linear", CIFAR, 8, "architecture.width: 'linear' has no width"),
        ("resnet50-imagenet", CIFAR, 8, "architecture.width: 'resnet50-imagenet' has no width"),
        ("resnet18", CIFAR, 0, "architecture.width: 0 is not above 0"),
        ("resnet18", CIFAR, -1, "architecture.width: -1 is not above 0"),
        ("densenet121", CIFAR, 9, "architecture.width: 'densenet121' takes a multiple of 2, not 9"),
        ("inception-v3", CIFAR, 64, "architecture.width: 'inception-v3' takes a multiple of 12, not 64"),
        ("vgg16", MNIST, None, "architecture.name: 'vgg16' needs images of at least 32 x 32 pixels, not 28 x 28"),
        ("resnet9", (3, 7, 9), None, "'resnet9' needs images of at least 8 x 8 pixels, not 7 x 9"),
        ("densenet121", (3, 7, 9), None, "'densenet121' needs images of at least 8 x 8 pixels, not 7 x 9"),
        ("inception-v3", (3, 6, 9), None, "'inception-v3' needs images of at least 7 x 7 pixels, not 6 x 9"),
        ("resnet50-imagenet", MNIST, None, "'resnet50-imagenet' takes images of 3 channels, not 1"),
    ],
)
def test_refusals(architecture: str, shape: tuple[int, int, int], width: int | None, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        create(architecture, num_classes=10, image_shape=shape, width=width)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("architecture", "side"), [("vgg16", 32), ("densenet121", 8), ("resnet9", 8), ("inception-v3", 7)]
)
def test_the_smallest_images(architecture: str, side: int) -> None:
    assert narrow(architecture, (3, side, side)).eval()(torch.rand(1, 3, side, side)).shape == (1, 7)


def test_names_cost_no_torch() -> None:
    code = "import sys, robustfeatures.models.creation; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_global_average_is_torchs_in_both_layouts() -> None:
    images = torch.rand(5, 6, 3, 4, dtype=torch.float64)
    for layout in (torch.contiguous_format, torch.channels_last):
        found = GlobalAveragePool()(images.contiguous(memory_format=layout))
        torch.testing.assert_close(found, images.mean((2, 3)), atol=1e-14, rtol=0)


def test_the_gradient_of_the_global_average_is_laid_out_as_networks_run() -> None:
    images = torch.rand(5, 6, 3, 4).contiguous(memory_format=torch.channels_last).requires_grad_(True)
    (gradient,) = torch.autograd.grad(GlobalAveragePool()(images).square().sum(), images)
    assert gradient.stride() == images.stride()


@pytest.mark.parametrize("architecture", ["small-cnn", "mnist-cnn"])
def test_pooling_before_the_relu_changes_neither_values_nor_gradients(architecture: str) -> None:
    """Digits have large areas of one value, so neighbouring values are often equal, above and below zero."""
    network = disturb_batch_norms(narrow(architecture, (1, 8, 8))).double()
    assert isinstance(network, Network)
    assert isinstance(network.features, nn.Sequential)
    layers = dict(network.features.named_children())
    names = list(layers)
    swapped = [name for name in names if isinstance(layers[name], nn.MaxPool2d)]
    for name in swapped:
        place = names.index(name)
        assert isinstance(layers[names[place + 1]], nn.ReLU)
        names[place : place + 2] = names[place + 1], name
    assert swapped
    usual = nn.Sequential(*(layers[name] for name in names))
    images = torch.rand(20, 1, 8, 8, dtype=torch.float64).mul(4).round().div(4)
    images[:, :, :4] = 0
    images.requires_grad_(True)
    weights = torch.randn(network.features(images).shape, dtype=torch.float64)
    found, expected = network.features(images), usual(images)
    assert torch.equal(found, expected)
    assert (expected == 0).any()
    (gradient,) = torch.autograd.grad((found * weights).sum(), images)
    (reference,) = torch.autograd.grad((expected * weights).sum(), images)
    assert torch.equal(gradient, reference)
    assert gradient.abs().max() > 0
