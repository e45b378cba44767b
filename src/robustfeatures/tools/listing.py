"""The artifacts that are there, one line each, with the number that matters most."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError, count_things, make_printable, suggest
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.recipe import STAGES
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.accuracies import describe_accuracies, find_accuracies
from robustfeatures.tools.finding import family_of, label_of, list_references
from robustfeatures.tools.status import format_duration

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Line:
    """An artifact that was made. `number` is its accuracy or its size, `age` in seconds, `size` in bytes.

    One whose payload is gone has no size, and its `number` says so. Several artifacts may have the payload `key`.
    """

    stage: str
    label: str
    digest: str
    seed: str
    number: str
    age: float
    size: int
    key: str


def list_artifacts(
    artifacts: Artifacts,
    store: Store,
    *,
    stage: str | None = None,
    label: str = "",
    names: Collection[str] | None = None,
) -> list[Line]:
    """The artifacts of a stage, whose labels contain `label`, and that are among `names`; by default all.

    Raises:
        UserError: there is no such stage.
    """
    if stage is not None and stage not in STAGES:
        raise UserError(f"--stage: there is no stage {stage!r}{suggest(stage, STAGES)}")
    found = []
    accuracies = find_accuracies(artifacts, store)
    for path in list_references(artifacts):
        name = f"{path.parent.name}/{path.stem}"
        if path.parent.name not in STAGES or stage not in (None, path.parent.name) or label not in label_of(path):
            continue
        if names is None or name in names:
            reference = read_reference(path)
            if store.manifest(reference["key"]) is None:
                found.append(_line(path, reference, "missing or damaged", 0))
                continue
            number = describe_accuracies(accuracies.get(name, ())) or _describe_size(store, reference)
            found.append(_line(path, reference, number, reference["bytes"]))
    return found


def _line(path: Path, reference: Mapping[str, Any], number: str, size: int) -> Line:
    label = reference["label"]
    seed = label[len(family_of(label)) :].removeprefix("-seed")
    age = (datetime.now(UTC) - datetime.fromisoformat(reference["built"]["started"])).total_seconds()
    return Line(path.parent.name, label, reference["digest"], seed, number, age, size, reference["key"])


def _describe_size(store: Store, reference: Mapping[str, Any]) -> str:
    """The number of images of a data set, or of rows of a measurement; empty where neither can be read."""
    folder = store.payload(reference["key"])
    try:
        if reference["stage"] in ("data", "derived"):
            return ", ".join(_count_images(folder / "data.zarr"))
        if reference["stage"] == "measurement":
            return f"{len((folder / 'rows.csv').read_text(encoding='utf-8').splitlines()) - 1} rows"
    except (OSError, ValueError, KeyError):
        pass
    return ""


def _count_images(payload: Path) -> Iterator[str]:
    for path in sorted(payload.glob("*/images/zarr.json")):
        yield f"{path.parents[1].name} {read_json(path)['shape'][0]}"


def draw(lines: Collection[Line]) -> Table:
    """The lines as rich shows them, with the size of all together."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_footer=True)
    # Several references may stand for one payload.
    total = sum({line.key: line.size for line in lines}.values())
    footers = {"stage": count_things(len(lines), "artifact"), "size": format_bytes(total)}
    for name in ("stage", "label", "digest", "seed", "number", "age", "size"):
        numeric = name in ("seed", "age", "size")
        footer, justify = footers.get(name, ""), "right" if numeric else "left"
        table.add_column(name, footer, justify=justify, overflow="fold", no_wrap=name != "label")  # type: ignore[arg-type]
    for line in lines:
        cells = (line.stage, line.label, line.digest, line.seed, line.number, format_duration(line.age))
        table.add_row(*(Text(make_printable(cell)) for cell in cells), format_bytes(line.size))
    return table


def format_bytes(size: float) -> str:
    """Bytes as people say them: "12 kB", "3.4 MB", "1.2 GB"."""
    for factor, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= factor:
            return f"{size / factor:.1f} {name}"
    return f"{size / 1e3:.0f} kB"
