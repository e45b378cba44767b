"""Batches from memory and from disk are equal, and batches from disk need little memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine import batches as module
from robustfeatures.engine import fast_path
from robustfeatures.engine.batches import InMemory, Streamed, choose_batch_size, load_batches
from robustfeatures.models import create
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.training.accuracy import predict
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Augmentation, Training

CPU = torch.device("cpu")


@pytest.fixture(params=[np.uint8, np.float32])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> ImageDataset:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (300, 3, 8, 8), dtype=np.uint8)
    if request.param is np.float32:
        images = generator.random((300, 3, 8, 8), dtype=np.float32)  # type: ignore[assignment]
    dataset = ImageDataset(images, generator.integers(0, 4, 300), {"source_index": np.arange(300)}, tuple("abcd"))
    write_dataset(tmp_path / "data.zarr", {"train": dataset})
    return read_dataset(tmp_path / "data.zarr", "train", in_memory=False)


def test_streamed_batches_are_those_from_memory(stored: ImageDataset, device: torch.device) -> None:
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    streamed, memory = load_batches(stored, device, memory_bytes=0), load_batches(stored, device)
    assert isinstance(streamed, Streamed)
    assert isinstance(memory, InMemory)
    pairs = list(zip(streamed.batches(order, 64), memory.batches(order, 64), strict=True))
    assert [len(rows) for (rows, _), _ in pairs] == [64, 64, 64, 64, 44]
    for (rows, images), (same_rows, same_images) in pairs:
        assert torch.equal(rows, same_rows)
        assert torch.equal(images, same_images)
    expected = torch.from_numpy(stored.float_images(order.numpy()))
    assert torch.equal(torch.cat([images for (_, images), _ in pairs]).cpu(), expected)


def test_training_and_prediction_do_not_depend_on_where_images_are(stored: ImageDataset, device: torch.device) -> None:
    settings = Training(
        epochs=2, batch_size=64, learning_rate=0.1, augmentation=Augmentation(crop_padding=1, flip=True)
    )
    results = []
    for memory_bytes in (0, module.MEMORY_BYTES):
        torch.manual_seed(0)
        network = create("small-cnn", num_classes=4, image_shape=(3, 8, 8), width=4).to(device)
        images = load_batches(stored, device, memory_bytes=memory_bytes)
        train(network, images, torch.from_numpy(stored.labels).to(device), settings, seed=0)
        results.append((network.state_dict(), predict(network, images)))
    (one, predicted), (other, same) = results
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(predicted, same)


def test_images_of_uint8_are_converted_batch_by_batch_to_the_same_bits() -> None:
    """As a GPU keeps them, where they take a quarter of the memory."""
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = ImageDataset(images.numpy(), np.zeros(50, np.int64), {}, ("a",))
    assert load_batches(whole, CPU).images.dtype == torch.float32  # type: ignore[attr-defined]
    ways = (InMemory(images), load_batches(whole, CPU))
    for (_, found), (_, expected) in zip(*(way.batches(torch.arange(50), 16) for way in ways), strict=True):
        assert torch.equal(found, expected)


def test_several_readers_keep_the_order(stored: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    streamed = Streamed(stored, CPU)
    expected = list(streamed.batches(order, 16))
    streamed.readers, streamed.ahead = module.FAST_READERS, module.FAST_AHEAD
    for (rows, images), (same_rows, same_images) in zip(streamed.batches(order, 16), expected, strict=True):
        assert torch.equal(rows, same_rows)
        assert torch.equal(images, same_images)


def test_the_fast_path_is_for_gpus_alone(stored: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    # A job that another test ran in this process may have turned it on.
    monkeypatch.setattr(fast_path, "_on", False)
    assert not Streamed(stored, torch.device("cuda")).pinned
    monkeypatch.setattr(fast_path, "_on", True)
    assert Streamed(stored, torch.device("cuda")).pinned
    assert Streamed(stored, torch.device("cuda")).readers == module.FAST_READERS
    assert not Streamed(stored, CPU).pinned
    assert Streamed(stored, CPU).readers == 1


def test_half_of_the_free_memory_of_a_gpu_is_for_images(stored: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte less, and the images are streamed. Images of uint8 stay so."""
    needed = stored.images.dtype.itemsize * 300 * 3 * 8 * 8
    free = 2 * needed - 2
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1 << 40))
    assert isinstance(load_batches(stored, torch.device("cuda")), Streamed)
    free += 2
    # No GPU holds them here.
    allocated: list[torch.dtype] = []
    empty = torch.empty

    def allocate(shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        assert device.type == "cuda"
        allocated.append(dtype)
        return empty(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", allocate)
    found = load_batches(stored, torch.device("cuda"))
    assert isinstance(found, InMemory)
    assert allocated == [torch.uint8 if stored.images.dtype == np.uint8 else torch.float32]
    np.testing.assert_array_equal(found.images.numpy(), stored.images[np.arange(300)])


def test_a_reader_that_stops_early_ends_its_thread(stored: ImageDataset) -> None:
    before = threading.active_count()
    iterator = load_batches(stored, CPU, memory_bytes=0).batches(torch.arange(300), 16)
    next(iterator)
    assert threading.active_count() == before + 1
    iterator.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_stored_images_are_indexed_like_an_array(stored: ImageDataset) -> None:
    images = stored.images[np.arange(300)]
    mask = np.random.default_rng(1).random(300) < 0.3
    for rows in (mask, slice(3, 290, 7), np.array([5, 5, 0]), np.array([-1, -300]), np.array([], np.int64)):
        np.testing.assert_array_equal(stored.images[rows], images[rows])  # type: ignore[index]
    for outside in (300, -301):
        with pytest.raises(IndexError):
            stored.images[np.array([outside])]


def test_rows_of_several_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("robustfeatures.pipeline.store.datasets.SHARD_BYTES", 1 << 14)
    images = np.random.default_rng(0).integers(0, 256, (100, 1, 16, 16), dtype=np.uint8)
    write_dataset(tmp_path / "data.zarr", {"train": ImageDataset(images, np.zeros(100, np.int64), {}, ("a",))})
    stored = read_dataset(tmp_path / "data.zarr", "train", in_memory=False).images
    assert stored.shard_rows == 64  # type: ignore[union-attr]
    for rows in (
        np.array([70, 64, 99, 70]),
        np.array([63, 64]),
        np.arange(100),
        np.array([-1, 0]),
        np.array([-1, -36]),
    ):
        np.testing.assert_array_equal(stored[rows], images[rows])


def test_batches_of_an_attack_fit_the_device() -> None:
    assert choose_batch_size(CPU, (1, 8, 8)) == 512
    assert choose_batch_size(CPU, (3, 32, 32)) == 64
    assert choose_batch_size(CPU, (3, 224, 224)) == 8
    assert choose_batch_size(torch.device("cuda"), (3, 32, 32)) == 1024
    assert choose_batch_size(torch.device("cuda"), (3, 224, 224)) == 32


MEMORY_SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine.batches import load_batches
from robustfeatures.pipeline.store import datasets as module
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset

module.SHARD_BYTES = 1 << 24
module.MOST_SHARDS = 1000

class Noise:
    shape, dtype = (6200, 3, 224, 224), np.dtype(np.uint8)
    def __getitem__(self, rows):
        return np.stack([np.random.default_rng(int(row)).integers(0, 256, self.shape[1:], np.uint8) for row in rows])

def taken():
    # Pages of mapped files are not the process's own; the system keeps or drops them.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) / 1024

path = Path(sys.argv[1]) / "data.zarr"
# Memory that the libraries take before the measurement.
small = ImageDataset(np.zeros((64, 3, 224, 224), np.uint8), np.zeros(64, np.int64), {}, ("a", "b"))
write_dataset(path.with_name("small.zarr"), {"train": small})
content_digest(path.with_name("small.zarr"))
# An allocation beyond this limit raises a MemoryError.
cap = 250
limit = int((taken() + cap) * 2**20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
write_dataset(path, {"train": ImageDataset(Noise(), np.arange(6200) % 2, {}, ("a", "b"))})
content_digest(path)
data = read_dataset(path, "train", in_memory=False)
total = 0.0
order = torch.randperm(6200)
for rows, images in load_batches(data, torch.device("cpu"), memory_bytes=0).batches(order, 32):
    total += float(images[0, 0, 0, 0]) * len(rows)
size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
print(size, cap, total)
"""


@pytest.mark.slow
def test_a_set_larger_than_the_memory_it_may_take(tmp_path: Path) -> None:
    """Writing, hashing and shuffled reading of 890 MiB, with little more than a quarter of that allowed."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    size, cap, total = map(float, done.stdout.split())
    assert size > 889
    assert size > 3.5 * cap
    assert total > 0


def test_few_files_for_many_images() -> None:
    """250 000 images of 224x224 in three splits are fewer than 100 files."""
    import zarr

    from robustfeatures.pipeline.store.datasets import create_array, shard_rows_of

    files = 1
    for count in (200_000, 25_000, 25_000):
        group = zarr.create_group(store=zarr.storage.MemoryStore())
        images = create_array(group, "images", (count, 3, 224, 224), np.dtype(np.uint8))
        columns = [create_array(group, name, (count,), np.dtype(np.int64)) for name in ("labels", "source_index")]
        # Each array has a description, and so has the group.
        files += 1 + sum(1 + len(list(shard_rows_of(array))) for array in (images, *columns))
    assert files < 100
