"""Grids of trainings: a few lines of a study define many named trainings that differ from a base in some fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated, Any

from annotated_types import MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError, suggest
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.pipeline.study.validation import validate
from robustfeatures.training.settings import Training


@dataclass(frozen=True, kw_only=True)
class Grid(Strict):
    """Trainings that differ from a named training in some of its fields.

    A dotted name is a field within a field: `adversary.eps`.
    """

    base: Name
    """The name of the training that has all other fields."""
    cells: Annotated[tuple[Mapping[str, Annotated[tuple[Any, ...], MinLen(1)]], ...], MinLen(1)]
    """Blocks of values for fields of a training; each combination of a block's values is one training."""


@dataclass(frozen=True)
class Cell:
    """One training of a grid. `varied` has the value of every field that any cell of the grid varies.

    `name` is the grid's name, followed by the fields of the cell's own block with their values, so that a new block
    does not rename the cell. The values of `varied` are numbers, or text for anything else.
    """

    name: str
    varied: Mapping[str, str | int | float]
    training: Training


def unfold_grid(name: str, grid: Grid, trainings: Mapping[str, Training]) -> tuple[Cell, ...]:
    """The cells of the grid of that name, in the order of the study.

    Raises:
        UserError: the base, a field or a value is wrong, or two cells are the same; the message names the field.
    """
    where = f"grids.{name}"
    if grid.base not in trainings:
        raise UserError(f"{where}.base: {grid.base!r} is unknown{suggest(grid.base, trainings)}")
    base = to_json(trainings[grid.base])
    # Fields are in the order of the study, and so are names.
    varying = list(dict.fromkeys(field for block in grid.cells for field in block))
    cells: dict[str, Cell] = {}
    for number, block in enumerate(grid.cells):
        for changes in _combinations(block):
            values = _apply_changes(base, changes, f"{where}.cells.{number}")
            training = validate(Training, values, f"{where}.cells.{number}.")
            varied = {field: _readable(_get_field(to_json(training), field)) for field in varying}
            # The name has only the fields of its own block, so that a new block does not rename this cell.
            named = (f"{field}-{_text(varied[field])}" for field in block)
            cell = Cell(".".join([name, *named]), varied, training)
            if cell.name in cells or varied in [other.varied for other in cells.values()]:
                raise UserError(f"{where}.cells.{number}: the cell {cell.name!r} appears twice")
            cells[cell.name] = cell
    return tuple(cells.values())


def _combinations(block: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*block.values()):
        yield dict(zip(block, values, strict=True))


def _apply_changes(base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    values: dict[str, Any] = deepcopy(dict(base))
    for field, value in changes.items():
        *outer, last = field.split(".")
        place = values
        for part in outer:
            if not isinstance(place.get(part), dict):
                problem = f"has no fields in {part!r}" if place.get(part) is not None else f"has no {part!r} to change"
                raise UserError(f"{where}.{field}: the base {problem}")
            place = place[part]
        if not outer and last not in place:
            known = [known.name for known in fields(Training)]
            raise UserError(f"{where}.{field}: unknown field{suggest(field, known)}")
        place[last] = value
    return values


def _get_field(values: Mapping[str, Any], field: str) -> Any:
    found: Any = values
    for part in field.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _readable(value: Any) -> str | int | float:
    """A number as it is; anything else as text for file names, such as `crop_padding4_flip` for a mapping."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return _text(value)


def _text(value: Any) -> str:
    match value:
        case None | False:
            return "none"
        case True:
            return "yes"
        case int() | float():
            return f"{value:g}".replace("+", "")
        case Mapping():
            # Options that are off are not in the text.
            parts = {name: item for name, item in value.items() if item is not None and item is not False and item != 0}
            return "_".join(name + ("" if item is True else _text(item)) for name, item in parts.items()) or "none"
        case list() | tuple():
            return "_".join(map(_text, value)) or "none"
    return str(value)
