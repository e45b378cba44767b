"""Write a study for a folder of images, from a study that is there: its text with other data and other radii."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod, sqrt
from pathlib import Path
from textwrap import fill

import yaml

from robustfeatures.data.folder import FileFacts, find_mode, inspect_headers
from robustfeatures.data.listing import Listing, describe_unread, list_images
from robustfeatures.data.own_files import combine_digests
from robustfeatures.data.registry import Size
from robustfeatures.data.settings import POOL, Data
from robustfeatures.errors import UserError
from robustfeatures.files import is_text, write_atomically
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.sizes import data_size
from robustfeatures.pipeline.study.config import read_config
from robustfeatures.pipeline.study.study import Study, find_study, read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.lengths import scale_lengths

# Small grey images are like the digits. The networks and radii of the other study are those of photographs.
LIKE_SMALL, LIKE_PHOTOGRAPHS = "digits", "cifar10-mini"
SMALL_SIDE = 16
# Larger images are made so small, because a processor would take days for them.
LARGEST_SIDE = 64
# Editors with a YAML language server then check and complete the study.
SCHEMA = "# yaml-language-server: $schema=../schemas/study.schema.json"
# What is drawn from the images for the splits that the folder lacks.
SHARES = {"validation": 0.15, "test": 0.25}
BATCH = re.compile(r"\bbatch_size: (\d+)")
# What YAML reads as another value than text.
WORDS = ("true", "false", "null", "yes", "no", "on", "off")


def write_study(name: str, folder: Path, studies: Path, *, like: str | None = None) -> Iterator[str]:
    """Write `<studies>/<name>.yaml` for the images in `folder`, with the trainings and experiments of the study `like`.

    By default that is one for small grey images or one for photographs. Yields lines on what was chosen.

    Raises:
        UserError: the name is taken or wrong, the folder's layout is wrong, a file is no image, an image is
            transparent, deeper than 8 bits or grey among colour images, or there is none to train on; the study `like`
            extends another one, has fields in braces, Linf radii, other data sets, no data, or lengths that are no
            plain numbers; or the new study cannot be planned. Then no file is left.
    """
    if not studies.is_dir():
        raise UserError(f"{studies}: no such folder; run this in the root of the repository")
    path = studies / f"{name}.yaml"
    config = read_config({"study": name}, elsewhere={"study": "NAME"})
    if name.lower() in WORDS or _is_number(name):
        raise UserError(f"{name}: `--config study={name}` would not read this as text; choose another name")
    if path.exists():
        raise UserError(f"{path}: there is such a study already; choose another name or remove it")
    data = Data(source="folder", path=str(folder))
    listings, classes = _list_images(data, folder)
    facts = inspect_headers(folder, [file for listing in listings.values() for file in listing.files])
    shape, side = _find_shape(folder, facts)
    small = shape[0] == 1 and max(shape[1:]) <= SMALL_SIDE
    base = like or (LIKE_SMALL if small else LIKE_PHOTOGRAPHS)
    original = find_study(studies, base, "--like")
    _check_whole(original)
    shares = {split: share for split, share in SHARES.items() if split not in listings}
    digest = combine_digests({file: fact.sha256 for file, fact in facts.items()})
    block = _data_block(folder, digest, listings, classes, side, shares)
    text = _adapt(original, folder, block, shape)
    size = data_size(replace(data, validation=shares.get("validation"), test=shares.get("test")))
    if size is not None:
        if size.images["train"] < 1:
            raise UserError(f"--data: {folder}: too few images; none would be left to train on")
        text = BATCH.sub(lambda found: f"batch_size: {min(int(found[1]), size.images['train'])}", text)
    with _removed_after_an_error(path):
        write_atomically(path, text.encode())
        try:
            unfold(config, studies)
        except UserError as error:
            # The file that the message names will be gone.
            message = str(error).removeprefix(f"{path}: ")
            reason = f"--data: {folder}" if like is None else f"--like: {like} does not fit these images"
            raise UserError(f"{reason}: {message}") from error
    images = sum(len(listing.files) for listing in listings.values())
    yield f"{path}: {images} images of {len(classes)} classes, {shape[0]} x {shape[1]} x {shape[2]}, as in {base}"
    unread = describe_unread(folder, listings)
    if unread:
        yield unread
    yield f"plan it: snakemake -n --config study={name}"
    yield f"build it: snakemake --cores all --config study={name}"


def _list_images(data: Data, folder: Path) -> tuple[dict[str, Listing], tuple[str, ...]]:
    """The image files of each split, and the class names.

    Raises:
        UserError: the path or the name of a class is not UTF-8, the layout is wrong, or there are no train images.
    """
    if not is_text(str(folder)):
        raise UserError(f"--data: {folder}: the path is not UTF-8, as a study is; rename the folder")
    try:
        listings, classes = list_images(data)
    except UserError as error:
        raise UserError(f"--data: {str(error).removeprefix('data.path: ')}") from error
    for name in classes:
        if not is_text(name):
            raise UserError(f"--data: {folder}: the name of the class {name!r} is not UTF-8; rename it")
    if not {"train", POOL} & listings.keys():
        raise UserError(f"--data: {folder} has no images to train on, only {' and '.join(listings)}")
    return listings, classes


@contextmanager
def _removed_after_an_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _check_whole(study: Path) -> None:
    """Check that the study is written in one file, whose text can be copied, with each field on lines of its own.

    Raises:
        UserError: it is not.
    """
    read_study(study)
    whole = study
    while "extends" in (values := read_yaml(whole)):
        whole = whole.with_name(f"{values['extends']}.yaml")
    if whole != study:
        choice = whole.stem if _can_be_copied(whole) else "digits or cifar10-mini"
        raise UserError(f"--like: {study.stem} extends another study, and one file is copied; choose {choice}")
    root = yaml.compose(study.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    if root.flow_style or any(key.tag == "tag:yaml.org,2002:merge" for key, _ in root.value):
        raise UserError(f"--like: {study.stem} has fields in braces or by a merge, not on lines of their own")


def _can_be_copied(study: Path) -> bool:
    try:
        found = read_study(study)
        scale_lengths(study, found, 1.0)
    except UserError:
        return False
    return not found.other_data


def _adapt(original: Path, folder: Path, data: str, shape: tuple[int, int, int]) -> str:
    """The text of a study with another title and other data, and with the L2 lengths for images of this shape."""
    study = read_study(original)
    factor = _find_factor(original.stem, study, shape)
    text = scale_lengths(original, study, factor)
    if study.other_data:
        raise UserError(f"--like: {original.stem} has other data sets, in other_data; choose another study")
    text = _replace_field(text, "title", f"title: {json.dumps(f'Images in {folder}', ensure_ascii=False)}\n")
    text = _replace_field(text, "data", data)
    for field in ("published_setting", "reduced"):
        text = _replace_field(text, field, "")
    base = original.stem
    return (
        f"{SCHEMA}\n"
        f"# Written by `robustfeatures new`, with trainings and experiments of the study {base}. L2 radii and steps\n"
        f"# of images are times {factor:.3g}: they grow with the square root of the number of values in an image.\n"
        + re.sub(r"\A(#.*\n)+", "", text)
    )


def _find_shape(folder: Path, facts: Mapping[str, FileFacts]) -> tuple[tuple[int, int, int], int | None]:
    """The shape (C, H, W) of the images, and the `size` that makes them so; None if they are so already."""
    for file, fact in facts.items():
        if fact.problem is not None:
            raise UserError(f"{folder / file}: {fact.problem}; mend or remove it")
    try:
        channels = 1 if find_mode(facts) == "L" else 3
    except UserError as error:
        raise UserError(f"--data: {folder}: {str(error).removeprefix('data.path: ')}") from error
    sizes = {(fact.height, fact.width) for fact in facts.values()}
    if len(sizes) == 1:
        height, width = next(iter(sizes))
        if max(width, height) <= LARGEST_SIDE:
            return (channels, height, width), None
    side = min(LARGEST_SIDE, *(min(size) for size in sizes))
    return (channels, side, side), side


def _find_factor(name: str, study: Study, shape: tuple[int, int, int]) -> float:
    """By what to multiply L2 lengths, so that a component of an image changes as much as in the original study."""
    size: Size | None = None if study.data is None else data_size(study.data)
    if size is None:
        raise UserError(f"--like: {name} has no data whose size is known; choose another study")
    return sqrt(prod(shape) / prod(size.shape))


def _data_block(
    folder: Path,
    sha256: str,
    listings: Mapping[str, Listing],
    classes: tuple[str, ...],
    side: int | None,
    shares: Mapping[str, float],
) -> str:
    lines = [
        "data:",
        "  source: folder",
        f"  path: {json.dumps(str(folder), ensure_ascii=False)}",
        f"  sha256: {sha256}",
    ]
    if side is not None:
        lines += [
            "  # The shorter side of each image is resized to so many pixels, and the middle is cropped to a square.",
            f"  size: {side}",
        ]
    if shares:
        lines.append("  # Shares of the images, drawn class by class.")
    lines += [f"  {split}: {share}" for split, share in shares.items()]
    counts = dict.fromkeys(classes, 0)
    for listing in listings.values():
        for label in listing.labels:
            counts[classes[label]] += 1
    comment = ", ".join(f"{json.dumps(name, ensure_ascii=False)} ({count})" for name, count in counts.items())
    comment = fill(f"The classes, with their images: {comment}.", 118, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([comment, *lines]) + "\n"


def _replace_field(text: str, field: str, new: str) -> str:
    """The text of a study with other lines for a field, and for the comment above it; comments inside it go too."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    starts = {str(key.value): key.start_mark.index - key.start_mark.column for key, _ in root.value}
    begin = starts.get(field)
    if begin is None:
        return text
    following = min((start for start in starts.values() if start > begin), default=len(text))
    # A comment above the next field is that field's.
    own = re.sub(r"(^(#.*)?\n)+\Z", "", text[begin:following], flags=re.MULTILINE)
    before = re.sub(r"(^#.*\n)+\Z", "", text[:begin], flags=re.MULTILINE)
    return before + new + text[begin + len(own) :]


def _is_number(name: str) -> bool:
    """Whether Python, and so Snakemake, reads a text as a number."""
    for read in (float, lambda text: int(text, base=0)):
        try:
            read(name)
        except ValueError:
            continue
        return True
    return False
