"""What a figure shows, in words for people who cannot see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustfeatures.errors import make_printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Longer lists of panels or series end with how many more there are.
MOST = 12


def describe_figure(figure: Figure) -> str:
    """The panels of a figure: their titles, axes with ranges, and the series in their legends."""
    panels = [
        axes for axes in figure.axes if axes.get_visible() and axes.has_data() and axes.get_label() != "<colorbar>"
    ]
    lines = [_describe_panel(axes) for axes in panels]
    series = _list([text.get_text() for legend in figure.legends for text in legend.get_texts()])
    found = [f"{len(panels)} panels" if len(panels) != 1 else "One panel", *(line for line in lines[:MOST] if line)]
    if len(lines) > MOST:
        found.append(f"And {len(lines) - MOST} more panels")
    if series:
        found.append(f"Series: {series}")
    return make_printable(" ".join(f"{_collapse(text)}." for text in found))


def _describe_panel(axes: Axes) -> str:
    x, y = axes.get_xlabel(), axes.get_ylabel()
    parts = []
    if axes.axison and y:
        low, high = axes.get_ylim()
        parts.append(f"{y} from {low:.3g} to {high:.3g}" + (f" against {x}" if x else ""))
    elif axes.axison and x:
        parts.append(f"along {x}")
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    names = [tick for tick in ticks if any(char.isalpha() for char in tick)]
    if names:
        parts.append(f"for {_list(names)}")
    legend = axes.get_legend()
    if legend is not None:
        parts.append(f"series {_list([text.get_text() for text in legend.get_texts()])}")
    title = axes.get_title() or axes.get_title(loc="left")
    return ": ".join(part for part in (title, "; ".join(parts)) if part)


def _list(names: list[str]) -> str:
    different = list(dict.fromkeys(_collapse(name) for name in names if name))
    more = f" and {len(different) - MOST} more" if len(different) > MOST else ""
    return f"{', '.join(different[:MOST])}{more}"


def _collapse(text: str) -> str:
    return " ".join(text.split())
