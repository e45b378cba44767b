"""The draws of derived sets: targets, and the starts of inversions."""

from __future__ import annotations

import numpy as np

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.derived.generation import derive_splits
from robustfeatures.derived.inversion import draw_noise, draw_start_rows
from robustfeatures.derived.settings import Derived, Inversion
from robustfeatures.derived.targeted_attack import draw_targets
from robustfeatures.models import create
from tests.runs import MemoryRun


def test_targets_and_starts_depend_on_the_image_alone() -> None:
    """The draw for an image depends neither on the other images nor on their order."""
    labels, indices = np.arange(1000) % 10, np.arange(1000) * 3
    drawn = draw_targets(labels, indices, target="random", num_classes=10, seed=0)
    np.testing.assert_array_equal(
        drawn[500:], draw_targets(labels[500:], indices[500:], target="random", num_classes=10, seed=0)
    )
    assert not np.array_equal(drawn, draw_targets(labels, indices, target="random", num_classes=10, seed=1))
    # Uniform over all classes, whatever the label: each of 100 cells holds 10 on average.
    table = np.histogram2d(labels, drawn, bins=10)[0]
    assert ((table - 10) ** 2 / 10).sum() < 160
    np.testing.assert_array_equal(
        draw_targets(labels, indices, target="next", num_classes=10, seed=0), (labels + 1) % 10
    )
    assert (draw_targets(labels, indices, target=7, num_classes=10, seed=0) == 7).all()


def test_train_and_test_images_of_one_index_start_apart() -> None:
    """CIFAR-10 counts both of its splits from 0."""
    generator = np.random.default_rng(0)
    provenance = {"source_index": np.arange(20)}
    splits = {
        split: ImageDataset(
            generator.random((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 5, provenance, ("x",) * 5
        )
        for split in ("train", "test")
    }
    source = create("small-cnn", num_classes=5, image_shape=(1, 8, 8), width=4).eval()
    method = Inversion(kind="inversion", start="noise", step_size=1e-6, steps=1)
    run = MemoryRun({"data": splits, "source": source})
    derived, _ = derive_splits(Derived(method=method, seed=3, splits=("train", "test")), run)
    rows = np.arange(20)
    train, test = (derived[split].images(rows, lambda steps: None) for split in ("train", "test"))
    # The step is too short to matter: the training set is what its seed says, as in earlier versions.
    np.testing.assert_allclose(train, draw_noise(rows, (1, 8, 8), seed=3), atol=1e-5)
    assert abs(np.corrcoef(train.ravel(), test.ravel())[0, 1]) < 0.1


def test_inversions_start_at_another_image_whatever_its_label() -> None:
    generator = np.random.default_rng(0)
    labels, count = np.arange(500) % 5, 500
    original = ImageDataset(
        generator.random((count, 1, 2, 2), dtype=np.float32), labels, {"source_index": np.arange(count) + 7}, ("x",) * 5
    )
    index = original.provenance["source_index"][draw_start_rows(original, seed=0)]
    assert (index != original.provenance["source_index"]).all()
    table = np.histogram2d(labels, labels[index - 7], bins=5)[0]
    # 16 degrees of freedom; 40 is beyond the 99.9th percentile.
    assert ((table - 20) ** 2 / 20).sum() < 45
    drawn = draw_noise(original.provenance["source_index"], (1, 2, 2), seed=0)
    np.testing.assert_array_equal(draw_noise(original.provenance["source_index"][300:], (1, 2, 2), seed=0), drawn[300:])
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert abs(drawn.mean() - 0.5) < 0.02
    # A fifth of the deviation: the same noise, nearer to grey where nothing was clipped.
    faint = draw_noise(original.provenance["source_index"], (1, 2, 2), seed=0, deviation=0.05)
    whole = (drawn > 0) & (drawn < 1)
    np.testing.assert_allclose(faint[whole] - 0.5, (drawn[whole] - 0.5) / 5, atol=1e-6)
