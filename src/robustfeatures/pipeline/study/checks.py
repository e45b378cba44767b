"""Checks of a study's values, beyond their types, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robustfeatures.attacks.evaluating.registry import ATTACKS
from robustfeatures.attacks.evaluating.settings import PGD, Attack
from robustfeatures.attacks.settings import NormName, check_radii
from robustfeatures.data.registry import SourceEntry, find_source
from robustfeatures.data.settings import Data, Split
from robustfeatures.errors import UserError, suggest
from robustfeatures.models.own_files import check_own, parse_own
from robustfeatures.models.registry import find_network
from robustfeatures.models.settings import Architecture, Pretrained
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.training.settings import Training

# The values that the papers print.
PUBLISHED = Path(__file__).resolve().parents[2] / "experiments" / "published"


def check_data(data: Data, where: str) -> None:
    """Check the data set in the field `where` before it is read.

    Raises:
        UserError: the source is unknown, the path of the user's files is missing or does not exist, a share or size is
            missing or not allowed for the source, or the shares leave no training images.
    """
    for each, place in data.iterate_fields(where):
        source = find_source(each.source, f"{place}.source")
        _check_files(each, source, place)
        _check_splits(each, source, place)
        source.check_size(each.size, f"{place}.size")


def _check_files(data: Data, source: SourceEntry, where: str) -> None:
    if source.has_own_files and data.path is None:
        raise UserError(f"{where}.path: the source {data.source!r} needs the path of your files")
    if not source.has_path:
        for name in ("path", "sha256"):
            if getattr(data, name) is not None:
                raise UserError(f"{where}.{name}: the source {data.source!r} takes none")
    if source.has_own_files and not Path(str(data.path)).exists():
        raise UserError(f"{where}.path: {data.path} does not exist")


def _check_splits(data: Data, source: SourceEntry, where: str) -> None:
    brought = source.splits
    if brought == () and data.test is None:
        raise UserError(
            f"{where}.test: the source {data.source!r} has one pool of images; say what share of it is for testing"
        )
    for name, share in (("test", data.test), ("validation", data.validation)):
        if share is not None and name in (brought or ()):
            raise UserError(f"{where}.{name}: the source {data.source!r} has a {name} split of its own")
    if brought and data.validation is not None and "train" not in brought:
        raise UserError(f"{where}.validation: the source {data.source!r} has no images to train on")
    if (data.validation or 0) + (data.test or 0) >= 1:
        raise UserError(f"{where}.test: validation and test leave nothing to train on")


def has_split(data: Data, split: Split) -> bool:
    """Whether a data set has a split. A split that only the user's files can show is assumed to be there."""
    for each in data.iterate_sources():
        brought = find_source(each.source).splits
        if brought is None or split in (brought or ("train", "test")):
            return True
        if split == "validation" and each.validation is not None:
            return True
    return False


def check_training(training: Training, where: str, *, compile: bool) -> None:
    """Check that every value of the training in the field `where` has an effect, and that its GPUs divide a batch.

    Raises:
        UserError: a value has no effect, the GPUs do not divide the batch, or torch would `compile` for several GPUs.
    """
    if training.milestones and training.schedule != "step":
        raise UserError(f"{where}.milestones: the schedule {training.schedule!r} takes none; 'step' does")
    late = [epoch for epoch in training.milestones if epoch >= training.epochs]
    if late:
        raise UserError(
            f"{where}.milestones: {late[0]} is not below the {training.epochs} epochs, so nothing follows it"
        )
    if training.natural and training.adversary is None:
        raise UserError(f"{where}.natural: {training.natural} of a batch is spared, but there is no adversary")
    if training.gpus_per_training is not None:
        gpus, size = training.gpus_per_training, training.batch_size
        if size % gpus:
            raise UserError(f"{where}.gpus_per_training: {gpus} GPUs cannot share a batch_size of {size} evenly")
        if compile:
            raise UserError(f"{where}.gpus_per_training: compile must be false for a training on several GPUs")


def check_network(architecture: Architecture, where: str, folder: Path) -> None:
    """Check the network in the field `where` before it is made; the user's own file lies in the study's `folder`.

    Raises:
        UserError: the network is unknown, its width is not allowed, or the user's file has no such function.
    """
    own = parse_own(architecture.name)
    if own is not None:
        check_own(own, folder, f"{where}.name")
    find_network(architecture.name, f"{where}.name").check_width(architecture.width, where)


def check_pretrained(pretrained: Pretrained, where: str, folder: Path) -> None:
    """Check a network trained elsewhere, in the field `where`; the user's own file lies in the study's `folder`.

    Raises:
        UserError: the file of weights does not exist, or the network is unknown or not allowed.
    """
    if not Path(pretrained.weights).is_file():
        raise UserError(f"{where}.weights: {pretrained.weights} does not exist")
    if (pretrained.mean is None) != (pretrained.std is None):
        raise UserError(f"{where}.mean: give both mean and std, or neither")
    own = parse_own(pretrained.architecture)
    if own is not None:
        check_own(own, folder, f"{where}.architecture")
    find_network(pretrained.architecture, f"{where}.architecture").check_width(pretrained.width, where)


def check_published_setting(setting: str) -> None:
    """Check that a paper prints values for the setting.

    Raises:
        UserError: no paper does.
    """
    known: set[str] = set()
    for path in sorted(PUBLISHED.glob("*.yaml")):
        tables = [entries for entries in read_yaml(path).values() if isinstance(entries, list)]
        known |= {entry["setting"] for entries in tables for entry in entries}
        # Reading a file takes a while, and most settings are in the first one.
        if setting in known:
            return
    raise UserError(f"published_setting: {setting!r} is in no paper{suggest(setting, known)}")


def check_attacks(norm: NormName, attacks: Sequence[Attack], where: str) -> None:
    """Check that attacks can run together.

    Raises:
        UserError: one appears twice, one is made for another norm, or the steps of PGD end inside the ball.
    """
    if len({attack.name for attack in attacks}) < len(attacks):
        raise UserError(f"{where}: an attack appears twice")
    for attack in attacks:
        norms = ATTACKS[attack.kind].norms
        if norm not in norms:
            raise UserError(f"{where}: {attack.kind} attacks in the norm {' or '.join(norms)} alone, not in {norm}")
        if isinstance(attack, PGD):
            check_reach(attack.steps, max(attack.relative_step_sizes), f"{where}: {attack.name}")


def check_reach(steps: int, relative_step_size: float, where: str) -> None:
    """Check that PGD can reach the surface of the ball. A step is this share of the radius.

    Raises:
        UserError: it ends inside the ball.
    """
    # 49 steps of 1/49 have a sum below 1.
    if steps * relative_step_size < 1 - 1e-9:
        raise UserError(
            f"{where}: {steps} x {relative_step_size:g} of the radius does not reach the surface of the ball"
        )


def check_eps(norm: NormName, eps: Sequence[float], where: str) -> None:
    """Check the radii of an evaluation.

    Raises:
        UserError: a radius is too large for its norm.
    """
    try:
        check_radii({norm: eps})
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
