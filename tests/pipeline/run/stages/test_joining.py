"""Parts that were planned for a GPU are joined without one; a processor stands in for the GPU that makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from robustfeatures.attacks.evaluating.settings import PGD, Evaluation
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.derived.settings import Derived, UntargetedAttack
from robustfeatures.errors import UserError
from robustfeatures.files import hash_file
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.run.blocks import Share
from robustfeatures.pipeline.run.stages import derived, evaluation
from robustfeatures.pipeline.store.content import Hashes, content_digest, find_inode
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.store.networks import save_network
from robustfeatures.pipeline.store.store import Store
from tests.pipeline.run.stages.jobs import job_in

COUNT = 3000
Make = Callable[..., None]

STAGES = [
    pytest.param(
        derived.make,
        Derived(
            method=UntargetedAttack(kind="untargeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=2),
            seed=0,
            splits=("test",),
        ),
        "data.zarr",
        id="derived",
    ),
    pytest.param(
        evaluation.make,
        Evaluation(
            split="test", norm="l2", attacks=(PGD(kind="pgd", steps=2, relative_step_sizes=(0.2,)),), eps=(0.0, 0.1)
        ),
        "rows.csv",
        id="evaluation",
    ),
]


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """3000 random images, which are two blocks on a GPU, and an untrained network."""
    torch.manual_seed(0)
    network: Network = create("small-cnn", num_classes=10, image_shape=(1, 8, 8), width=2)
    generator = np.random.default_rng(0)
    rows, names = np.arange(COUNT), tuple("abcdefghij")
    images = generator.random((COUNT, 1, 8, 8), np.float32)
    write_dataset(tmp_path / "data.zarr", {"test": ImageDataset(images, rows % 10, {"source_index": rows}, names)})
    save_network(
        network,
        tmp_path / "model.safetensors",
        architecture="small-cnn",
        width=2,
        class_names=names,
        image_shape=(1, 8, 8),
    )
    return {name: tmp_path / f"{name}.{end}" for name, end in (("data", "zarr"),)} | {
        "source": tmp_path / "model.safetensors",
        "model": tmp_path / "model.safetensors",
    }


@pytest.mark.parametrize(("make", "parameters", "payload"), STAGES)
def test_parts_for_a_gpu_are_joined_without_one(
    tmp_path: Path, inputs: dict[str, Path], make: Make, parameters: object, payload: str
) -> None:
    store, folder, whole = Store(tmp_path / "store"), tmp_path / "joined", tmp_path / "whole"
    folder.mkdir()
    whole.mkdir()
    for part in (1, 2):
        make(parameters, folder, job_in(folder, inputs, store, Share(part, 2), planned_device="cuda"))
    assert list(folder.iterdir()) == []
    joining = job_in(folder, inputs, store, planned_device="cuda", can_make=False)
    make(parameters, folder, joining)
    assert all(name.startswith("cuda-") for name in joining.blocks.finished)
    assert len(joining.blocks.finished) > 1
    make(parameters, whole, job_in(whole, inputs, store))
    assert content_digest(folder / payload) == content_digest(whole / payload)
    # The counts of an evaluation do not tell the order of the images; its outcomes do.
    outcomes = sorted(path.name for path in whole.glob("*.npy"))
    assert outcomes == ([] if payload == "data.zarr" else ["robust.npy"])
    assert all((folder / name).read_bytes() == (whole / name).read_bytes() for name in outcomes)


@pytest.mark.parametrize(("make", "parameters", "payload"), STAGES)
def test_a_missing_block_is_not_made_on_another_device(
    tmp_path: Path, inputs: dict[str, Path], make: Make, parameters: object, payload: str
) -> None:
    store, folder = Store(tmp_path / "store"), tmp_path / "joined"
    folder.mkdir()
    make(parameters, folder, job_in(folder, inputs, store, Share(1, 2), planned_device="cuda"))
    joining = job_in(folder, inputs, store, planned_device="cuda", can_make=False)
    with pytest.raises(UserError, match=r"blocks/cuda-.*: the block is missing, and this job only joins blocks"):
        make(parameters, folder, joining)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda content: b""], ids=["cut", "empty"]
)
def test_a_damaged_block_of_an_evaluation_is_named_and_made_again(
    tmp_path: Path, inputs: dict[str, Path], damage: Callable[[bytes], bytes]
) -> None:
    make, parameters, payload = STAGES[1].values
    store, folder, whole = Store(tmp_path / "store"), tmp_path / "joined", tmp_path / "whole"
    folder.mkdir()
    whole.mkdir()
    first = job_in(folder, inputs, store, Share(1, 2))
    make(parameters, folder, first)
    block = first.blocks.path(first.blocks.finished[0])
    block.write_bytes(damage(block.read_bytes()))
    with pytest.raises(UserError, match="the block is damaged; run again"):
        make(parameters, folder, job_in(folder, inputs, store))
    make(parameters, folder, job_in(folder, inputs, store))
    make(parameters, whole, job_in(whole, inputs, store))
    assert content_digest(folder / payload) == content_digest(whole / payload)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_join_hashes_each_block_once(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """For the check of the blocks and for the manifest, just before the values are read for the content digest."""
    make, parameters, payload = STAGES[0].values
    store = Store(tmp_path / "store")
    with store.lease("joined") as lease:
        lease.fresh.mkdir()
        for part in (1, 2):
            make(parameters, lease.fresh, job_in(tmp_path / "joined", inputs, store, Share(part, 2)))
        joining = job_in(tmp_path / "joined", inputs, store)
        make(parameters, lease.fresh, joining)
        names = joining.blocks.finished
        if damaged:
            block = joining.blocks.path(names[-1])
            block.chmod(0o644)
            with block.open("r+b") as file:
                file.write(b"damage")
        hashed: list[tuple[int, int]] = []

        def count(path: Path) -> str:
            hashed.append(find_inode(path))
            return hash_file(path)

        for module in ("store.content", "store.store", "run.blocks"):
            monkeypatch.setattr(f"robustfeatures.pipeline.{module}.hash_file", count)
        hashes: Hashes = {}
        content = content_digest(lease.fresh / payload, hashes)
        if damaged:
            with pytest.raises(UserError, match="the block is damaged"):
                joining.blocks.check(names, hashes)
            return
        joining.blocks.check(names, hashes)
        blocks = {find_inode(joining.blocks.path(name)) for name in names}
        manifest = store.publish(lease, {"content": content, "built": {}}, hashes)
    assert len(blocks) == len(names) > 1
    assert all(hashed.count(block) == 1 for block in blocks)
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == hashlib.sha256((store.payload("joined") / name).read_bytes()).hexdigest()
    monkeypatch.undo()
    assert content_digest(store.payload("joined") / payload) == content
