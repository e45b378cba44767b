"""The shapes of figure that experiments share: readable in grey, with the spread over seeds."""

from robustfeatures.experiments.plots.bars import grouped_bars
from robustfeatures.experiments.plots.images import ImageRow, image_grid
from robustfeatures.experiments.plots.lines import curves
from robustfeatures.experiments.plots.matrices import heat_map
from robustfeatures.experiments.plots.points import scatter
from robustfeatures.experiments.plots.samples import sample_blocks

__all__ = ["ImageRow", "curves", "grouped_bars", "heat_map", "image_grid", "sample_blocks", "scatter"]
