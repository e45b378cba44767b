"""The card of an exported data set: what it is, how it was made, whose images it holds, how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.registry import SOURCES
from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import ABSENT, write_atomically
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH
from robustfeatures.pipeline.plan.tasks import find_study_of
from robustfeatures.pipeline.report.provenance import describe_recipes
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.tools.accuracies import read_correct
from robustfeatures.tools.opening import payload_file

# The names that Hugging Face gives to licences.
LICENCE_IDS = {"CC BY 4.0": "cc-by-4.0", "CC BY-SA 3.0": "cc-by-sa-3.0"}
COLUMNS = {
    "source_index": "the number of the image in its source, from which it was made",
    "source_label": "the class that the source gives to that image",
    "start_index": "the number of the image from which the optimisation began",
    "target": "the class, or the image, that was aimed at",
}


def write_card(
    path: Path,
    dataset: ImageDataset,
    sizes: Mapping[str, tuple[int, int]],
    source: Path,
    store: str | Path | None,
    notes: Sequence[str],
) -> None:
    """Write the card of an exported data set at `path`.

    `sizes` has the number of images and of bytes by split, and `notes` what the format loses. `source` is the reference
    of the set. If it is another path, nothing is known of how the set was made.
    """
    recipes = list(_collect(source)) if source.suffix == ".json" else []
    text = "\n\n".join(_sections(dataset, source, recipes, store, notes))
    head = yaml.safe_dump(_head(dataset, sizes, recipes), sort_keys=False, allow_unicode=True)
    write_atomically(path, f"---\n{head}---\n\n{text}\n".encode())


def _head(
    dataset: ImageDataset, sizes: Mapping[str, tuple[int, int]], recipes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What Hugging Face reads."""
    label = {"class_label": {"names": {str(number): name for number, name in enumerate(dataset.class_names)}}}
    licences = {LICENCE_IDS.get(text.partition(" (")[0], "other") for text in _licences(recipes).values()}
    return {
        "license": licences.pop() if len(licences) == 1 else "other",
        "task_categories": ["image-classification"],
        "tags": ["adversarial-robustness", "robust-features"],
        "dataset_info": {
            "features": [
                {"name": "image", "dtype": "image"},
                {"name": "label", "dtype": label},
                *({"name": name, "dtype": "int64"} for name in dataset.provenance),
            ],
            "splits": [
                {"name": split, "num_bytes": size, "num_examples": count} for split, (count, size) in sizes.items()
            ],
            "download_size": sum(size for _, size in sizes.values()),
            "dataset_size": sum(size for _, size in sizes.values()),
        },
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}-*"} for split in sizes],
            }
        ],
    }


def _sections(
    dataset: ImageDataset,
    source: Path,
    recipes: Sequence[Mapping[str, Any]],
    store: str | Path | None,
    notes: Sequence[str],
) -> Iterator[str]:
    shape = " x ".join(map(str, dataset.images.shape[1:]))
    what = f"{dataset.num_classes} classes, images of {shape} (channels, height, width)."
    if not recipes:
        yield "# Images and labels"
        yield f"{what} They were exported from a file without its recipe, so how they were made is not known here."
    else:
        recipe = recipes[-1]
        yield f"# {recipe['label']}"
        kind = "A data set derived with a trained network" if recipe["stage"] == "derived" else "A data set"
        yield f"{kind}, as `robustfeatures` makes it for the study of robust and non-robust features. {what}"
    yield from (f"Note: {note}." for note in notes)
    columns = ["`image` and `label`", *(f"`{name}`: {COLUMNS[name]}" for name in dataset.provenance)]
    yield "## Columns\n\n" + _items(columns)
    if not recipes:
        return
    yield "## Recipe\n\n" + _items(describe_recipes(recipes))
    if accuracies := list(_accuracies(source, recipes, store)):
        yield "## Accuracies of the source network\n\n" + _items(accuracies)
    yield "## Licence of the raw data\n\n" + _items([f"{name}: {text}" for name, text in _licences(recipes).items()])
    yield "## To make it again\n\n" + _command(source, recipes)


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _collect(reference: Path) -> Iterator[dict[str, Any]]:
    """The recipes that a reference builds on, inputs first, and its own."""
    try:
        recipe = read_reference(reference)["recipe"]
    except UserError:
        # An input whose reference was removed.
        return
    if "inputs" not in recipe:
        return
    artifacts, _ = Artifacts.of(reference)
    for below in recipe["inputs"].values():
        yield from _collect(artifacts.find(below))
    yield recipe


def _licences(recipes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The terms of each source of images."""
    return {
        name: SOURCES[name].licence
        for recipe in recipes
        if recipe["stage"] == "data"
        for name in _sources(recipe["parameters"])
    }


def _sources(data: Any) -> Iterator[str]:
    """The names of all sources in the parameters of a data set, also of those that are concatenated."""
    if isinstance(data, dict):
        if data.get("source") in SOURCES:
            yield data["source"]
        for value in data.values():
            yield from _sources(value)
    elif isinstance(data, list):
        for value in data:
            yield from _sources(value)


def _accuracies(reference: Path, recipes: Sequence[Mapping[str, Any]], store: str | Path | None) -> Iterator[str]:
    """A line for each evaluation here of the network that the set was derived with."""
    # By digests, because studies may give one network several labels.
    sources = {
        recipe["inputs"].get("source", "")[-DIGEST_LENGTH:] for recipe in recipes if recipe["stage"] == "derived"
    }
    artifacts, _ = Artifacts.of(reference)
    for path in sorted((artifacts.root / "evaluation").glob("*.json")):
        try:
            recipe = read_reference(path)["recipe"]
        except UserError:
            # A batch.
            continue
        if recipe["inputs"]["model"][-DIGEST_LENGTH:] not in sources:
            continue
        try:
            found = read_correct(payload_file(path, "rows.csv", store, verified=True))
        except (UserError, *ABSENT):
            found = {}
        numbers = [
            f"{percent(correct / total):.1f} % " + (f"at eps {eps:g}" if eps else "without an attack")
            for eps, (correct, total) in found.items()
        ]
        where = (
            f"{recipe['inputs']['model']} on the {recipe['parameters']['split']} images of {recipe['inputs']['data']}"
        )
        yield f"{where}: {', '.join(numbers)} ({recipe['parameters']['norm']}); {describe_recipes([recipe])[0]}"


def _command(reference: Path, recipes: Sequence[Mapping[str, Any]]) -> str:
    """The command that makes the set again, with the version of the code that made it."""
    found = read_reference(reference)
    artifacts, name = Artifacts.of(reference)
    planned = find_study_of(artifacts, name)
    study = f"study={shlex.quote(planned)} " if planned else ""
    commit = found.get("built", {}).get("git_commit") or ""
    target = f"results/artifacts/{shlex.quote(name)}.json"
    lines = [
        *([f"git checkout {commit.removesuffix('-dirty')}"] if commit else []),
        *(["# The code that made it had edits that are not in this commit."] if commit.endswith("-dirty") else []),
        f"snakemake --cores all --config {study}seeds_per_job=1 rows_per_job=1 -- {target}",
    ]
    said = f"The digest of the recipe is `{found.get('digest')}`, and that of the content `{found['content']}`."
    return "```sh\n" + "\n".join(lines) + f"\n```\n\n{said}"
