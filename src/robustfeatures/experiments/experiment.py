"""What an experiment is, and what its pure functions are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim


def _no_rows() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True)
class Need:
    """One artifact that an experiment reads: the row of the table it belongs to, its seed, and its recipe.

    `columns` stand beside the row in what it measured: the varied fields of a grid's cell, say.
    """

    row: str
    seed: int
    recipe: Recipe
    columns: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """What the needs of an experiment measured, and the settings it was asked for.

    evaluations: columns row, seed, metric, label_shift, eps, accuracy (percent): of all attacks together, by images
        that withstand all.
    attacks: the same and the column attack, for eps above 0: the accuracy that an attack and those before it leave.
    diagnostics: columns row, seed, label_shift, eps, attack, diagnostic, count, total (see `masking`).
    histories: columns row, seed, epoch, probe, network ("itself", or one that the probe shows the same examples),
        accuracy (percent; of a performance correlation 100 times its value), loss, images.
    measurements: columns row, seed, and those of the measurement.
    All: the columns of the need as well.
    payloads: the data set or weights of each (row, seed).
    published: the paper's own rows (columns as in the table, accuracy in percent), and where they stand.
    comparable: whether the study repeats the paper's setting, so that both may stand in one row.
    notes: warnings on what was measured, which table and figure print.
    """

    evaluations: pd.DataFrame
    histories: pd.DataFrame
    measurements: pd.DataFrame
    payloads: Mapping[tuple[str, int], Path]
    settings: Any
    attacks: pd.DataFrame = field(default_factory=_no_rows)
    diagnostics: pd.DataFrame = field(default_factory=_no_rows)
    published: pd.DataFrame | None = None
    published_source: str = ""
    published_setting: str = ""
    comparable: bool = False
    notes: Sequence[str] = ()

    @property
    def comparable_rows(self) -> pd.DataFrame | None:
        """The paper's own rows if they may stand beside the measured ones."""
        return self.published if self.comparable else None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of a paper; `needs` is called without torch, the other functions after all is measured.

    `table` returns identifying columns, then of each measured quantity x its mean `x` and, as far as they apply,
    `x_std`, `x_low`, `x_high`, `published_x` and `difference_x`, and `seeds` (see `summaries.over_seeds`). `units`
    are those of its columns.
    """

    id: str
    title: str
    paper: str
    needs: Callable[[Pieces, Any], Sequence[Need]]
    settings: type
    table: Callable[[Results], pd.DataFrame] | None = None
    figure: Callable[[Results], Figure] | None = None
    claims: Callable[[Results], Sequence[Claim]] | None = None
    units: Mapping[str, str] = field(default_factory=lambda: {"accuracy": "%"})
    caption: str = field(default="")
