"""The parts of an experiment, and the results that its functions read."""

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
    """One artifact that an experiment reads: its row in the table, its seed, and its recipe.

    `columns` are added to the measured rows: for example the varied fields of a grid's cell.
    """

    row: str
    seed: int
    recipe: Recipe
    columns: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """The measured rows of an experiment's needs, and its settings.

    evaluations: columns row, seed, metric, label_shift, eps, accuracy (percent): the share of images that
        withstand all attacks.
    attacks: the same columns and attack, for eps above 0: the accuracy under this attack and those before it.
    diagnostics: columns row, seed, label_shift, eps, attack, diagnostic, count, total (see `masking`).
    histories: columns row, seed, epoch, probe, network ("itself", or one that the probe shows the same examples),
        accuracy (percent; of a performance correlation 100 times its value), loss, images.
    measurements: columns row, seed, and those of the measurement.
    All four also have the columns of their need.
    payloads: the data set or weights of each (row, seed).
    published: the rows that the paper prints (columns as in the table, accuracy in percent), their source and setting.
    comparable: whether the study repeats the paper's setting, so that both fit in one row.
    notes: warnings about the measurements; table and figure print them.
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
        """The paper's rows if the study repeats their setting, else None."""
        return self.published if self.comparable else None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of a paper. `needs` runs without torch; the other functions run after all measurements.

    `table` returns identifying columns, then for each measured quantity x its mean `x` and, where they apply,
    `x_std`, `x_low`, `x_high`, `published_x` and `difference_x`, and `seeds` (see `summaries.summarise_seeds`). `units`
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
