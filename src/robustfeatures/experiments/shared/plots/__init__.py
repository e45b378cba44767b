"""Kinds of figures that experiments share: readable in grey, with the spread over seeds."""

from robustfeatures.experiments.shared.plots.bars import grouped_bars
from robustfeatures.experiments.shared.plots.images import ImageRow, image_grid
from robustfeatures.experiments.shared.plots.lines import curves
from robustfeatures.experiments.shared.plots.matrices import heat_map
from robustfeatures.experiments.shared.plots.samples import sample_blocks

__all__ = ["ImageRow", "curves", "grouped_bars", "heat_map", "image_grid", "sample_blocks"]
