"""The shapes of figure: what they draw, and that it is read without colours."""

from __future__ import annotations

import io
import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.experiments.catalogue import load_experiment
from robustfeatures.experiments.shared.interval_plots import plot_intervals
from robustfeatures.experiments.shared.plots import (
    ImageRow,
    curves,
    grouped_bars,
    heat_map,
    image_grid,
    sample_blocks,
)
from robustfeatures.experiments.shared.plots.images import CELL, LONGEST_LABEL
from robustfeatures.experiments.shared.plots.samples import choose_magnification
from robustfeatures.experiments.shared.plots.style import (
    DPI,
    WIDEST,
    accuracy_limits,
    contrasting,
    text_width,
    ticks_at,
    wrap,
)
from robustfeatures.experiments.shared.sources import split_sources
from robustfeatures.experiments.shared.summaries import count_clusters
from robustfeatures.experiments.shared.transfer_plots import plot_matrices_and_lines
from robustfeatures.pipeline.report.views.figure import render_figure
from tests.experiments.shared.test_claims import results

rng = np.random.default_rng(0)
draw_cells = partial(heat_map, value="accuracy", xlabel="to", ylabel="of", cell="{:.1f}".format)


def make_rows(*columns: tuple[str, tuple[object, ...]]) -> pd.DataFrame:
    """Three seeds of accuracies for every combination of the columns' values."""
    names = [name for name, _ in columns]
    combinations = itertools.product(*(values for _, values in columns), (0, 1, 2))
    rows = pd.DataFrame(list(combinations), columns=[*names, "seed"])
    return rows.assign(accuracy=rng.uniform(20, 80, len(rows)))


def hollow_points(axes: Axes) -> list[tuple[float, float]]:
    """The points drawn as hollow diamonds."""
    marks = [line for line in axes.lines if line.get_marker() == "D" and line.get_markerfacecolor() == "white"]
    return [point for line in marks for point in zip(line.get_xdata(), line.get_ydata(), strict=True)]


@pytest.mark.parametrize("points", [5, 60])
def test_curves_differ_without_their_colours(points: int) -> None:
    rows = make_rows(("row", tuple("abcdefghijk")), ("epoch", tuple(range(points))))
    figure = curves(rows, line="row", x="epoch", xlabel="epoch")
    looks = {
        (line.get_linestyle(), line._dash_pattern[1] and tuple(line._dash_pattern[1]), line.get_marker())
        for line in figure.axes[0].lines
    }
    assert len(looks) == 11
    few = curves(rows[rows["row"] < "h"], line="row", x="epoch", xlabel="epoch")
    assert len({str(line._dash_pattern) for line in few.axes[0].lines}) == 7


def test_a_curve_is_the_mean_and_its_band_the_deviation() -> None:
    rows = make_rows(("row", ("a",)), ("epoch", (1, 2, 3)))
    (axes,) = curves(rows, line="row", x="epoch", xlabel="epoch").axes
    seeds = rows["accuracy"].to_numpy().reshape(3, 3)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), seeds.mean(axis=1))
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx((seeds.mean(axis=1) + seeds.std(axis=1, ddof=1)).max())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "accuracy (%)")
    alone = curves(rows[rows["seed"] == 0], line="row", x="epoch", xlabel="epoch")
    assert not alone.axes[0].collections


def test_bands_and_whiskers_of_percentages_stay_within_0_and_100() -> None:
    rows = pd.DataFrame({"row": "a", "eps": [0, 0, 1, 1], "seed": [0, 1, 0, 1], "accuracy": [100.0, 90.0, 0.0, 10.0]})
    for ylabel, ends in (("accuracy (%)", (0.0, 100.0)), ("loss", (5 - 50**0.5, 95 + 50**0.5))):
        (axes,) = curves(rows, line="row", x="eps", xlabel="eps", ylabel=ylabel).axes
        heights = axes.collections[0].get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == pytest.approx(ends)
        (axes,) = grouped_bars(rows, group="row", bar="eps", xlabel="trained on", ylabel=ylabel).axes
        whiskers = [each for each in axes.collections if hasattr(each, "get_segments")]
        reached = np.concatenate([segment[:, 1] for each in whiskers for segment in each.get_segments()])
        assert (reached.min(), reached.max()) == pytest.approx(ends)


def test_the_intervals_of_x4_stay_within_0_and_100() -> None:
    rows = pd.DataFrame({"row": "a", "eps": 0.0, "seed": [0, 1], "accuracy": [99.0, 90.0]})
    (axes,) = plot_intervals(rows, row="row", panel="eps", title=str).axes
    (interval,) = (line for line in axes.lines if line.get_linestyle() == "-")
    low, high = interval.get_xdata()
    # Student's t of 1 degree of freedom is 12.706: 94.5 +- 57.2.
    assert (low, high) == pytest.approx((94.5 - 12.7062 * 4.5, 100.0), abs=1e-3)


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    rows = make_rows(("row", ("a",)), ("steps", (1, 10, 100, 2500)))
    figure = curves(rows, line="row", x="steps", xlabel="PGD steps", log_x=True)
    figure.savefig(io.BytesIO(), format="png")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert "100" in {label.get_text() for label in axes.get_xticklabels()}


def test_bars_differ_without_their_colours() -> None:
    rows = make_rows(("row", ("standard", "adversarial")), ("eps", (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 4.0)))
    (axes,) = grouped_bars(rows, group="row", bar="eps", xlabel="trained on").axes
    bars = [container for container in axes.containers if isinstance(container, BarContainer)]
    assert len({container.patches[0].get_hatch() for container in bars}) == 8
    heights = [patch.get_height() for container in bars for patch in container.patches]
    means = rows.groupby(["eps", "row"], sort=False)["accuracy"].mean().unstack().sort_index()
    np.testing.assert_allclose(heights, means[["standard", "adversarial"]].to_numpy().ravel())


@pytest.mark.parametrize("comparable", [False, True])
def test_published_values_are_marked_beside_the_papers_setting_alone(comparable: bool) -> None:
    figure = load_experiment("A1").figure
    assert figure is not None
    (axes,) = figure(results(comparable=comparable)).axes
    # The rows measured there are two of the six printed ones, each at two radii.
    assert sorted(y for _, y in hollow_points(axes)) == ([4.49, 82.48, 90.83, 95.25] if comparable else [])


def test_published_values_without_a_place_stand_at_the_end() -> None:
    rows = make_rows(("row", ("pathway 1", "pathway 2")), ("probe", ("train",)), ("epoch", (1, 2, 7)))
    published = pd.DataFrame([{"row": "pathway 2", "probe": "train", "accuracy": 99.0}])
    figure = curves(rows, panel="row", line="probe", x="epoch", xlabel="epoch", published=published)
    assert [hollow_points(axes) for axes in figure.axes] == [[], [(7, 99.0)]]


def test_the_published_value_of_a_level_stands_on_the_right_edge_and_at_no_number_of_steps() -> None:
    rows = make_rows(("line", ("PGD",)), ("steps", (1, 10, 100)))
    level = pd.DataFrame({"accuracy": [50.0, 52.0]})
    published = pd.DataFrame({"line": ["CW"], "steps": [0], "accuracy": [48.0]})
    figure = curves(rows, line="line", x="steps", xlabel="steps", log_x=True, levels={"CW": level}, published=published)
    (axes,) = figure.axes
    (mark,) = (line for line in axes.lines if line.get_marker() == "D")
    assert hollow_points(axes) == [(1.0, 48.0)]
    assert mark.get_transform() == axes.get_yaxis_transform()
    assert axes.get_xlim()[1] > 100


def test_thick_and_thin_lines_are_named_and_a_single_point_is_a_mark() -> None:
    rows = make_rows(("probe", ("train", "robust")), ("epoch", (1, 2, 7))).assign(smoothed=50.0)
    figure = curves(rows, line="probe", x="epoch", xlabel="epoch", value="smoothed", raw="accuracy")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["train", "robust", "moving average", "each epoch"]
    thick, thin = (figure.legends[0].legend_handles[at].get_linewidth() for at in (2, 3))
    assert thick > 2 * thin
    measured = [line.get_ydata() for line in figure.axes[0].lines if line.get_linewidth() == thin]
    np.testing.assert_allclose(measured[0], rows[rows["probe"] == "train"].groupby("epoch")["accuracy"].mean())
    plain = curves(rows, line="probe", x="epoch", xlabel="epoch")
    assert [text.get_text() for text in plain.legends[0].get_texts()] == ["train", "robust"]
    at_end = rows[(rows["probe"] == "train") | (rows["epoch"] == 7)]
    train, robust = curves(at_end, line="probe", x="epoch", xlabel="epoch").axes[0].lines
    assert (train.get_linestyle(), robust.get_linestyle(), robust.get_marker()) == ("-", "None", "s")


def test_a_heat_map_shows_its_values() -> None:
    rows = make_rows(("source", ("a", "b")), ("target", ("a", "b", "c"))).assign(part="untargeted")
    figure = draw_cells(rows, panel="part", row="source", column="target", label="rate (%)", limits=(0, 100))
    axes, bar = figure.axes
    means = rows.groupby(["source", "target"])["accuracy"].mean()
    assert [text.get_text() for text in axes.texts] == [f"{mean:.1f}" for mean in means]
    assert bar.get_ylabel() == "rate (%)"
    shown = axes.images[0]
    for text, mean in zip(axes.texts, means, strict=True):
        cell, letters = np.mean(shown.to_rgba(mean)[:3]), np.mean(to_rgb(text.get_color()))
        assert abs(cell - letters) > 0.3
    greys = [np.dot(shown.cmap(share)[:3], (0.299, 0.587, 0.114)) for share in np.linspace(0, 1, 50)]
    assert (np.diff(greys) > 0).all()


def test_one_scale_for_all_panels() -> None:
    rows = make_rows(("row", ("2 classes", "10 classes")), ("neuron", (0, 1)), ("cluster", (0, 1)))
    figure = draw_cells(rows, panel="row", row="neuron", column="cluster", label="cosine", limits=(-1, 1))
    assert {axes.images[0].get_clim() for axes in figure.axes[:2]} == {(-1, 1)}


def test_colours_may_be_of_another_column_than_the_numbers() -> None:
    rows = make_rows(("neuron", (0, 1)), ("cluster", (0, 1))).assign(accuracy=lambda found: found["neuron"] / 5 - 0.001)
    shares = rows.assign(share=rows["accuracy"] / 0.199, part="")
    names = {"panel": "part", "row": "neuron", "column": "cluster", "label": "share", "colour": "share"}
    axes = draw_cells(shares, **names, limits=(-1, 1), divide=1).axes[0]
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array())[1], [1.0, 1.0])
    # A number that is rounded to zero has no sign.
    assert [text.get_text() for text in axes.texts] == ["0.0", "0.0", "0.2", "0.2"]
    across, down = axes.lines
    assert (set(across.get_ydata()), set(down.get_xdata())) == ({0.5}, {0.5})


def test_numbers_contrast_with_their_cells() -> None:
    """At least 4.5 to 1, as the accessibility guidelines ask for."""
    shades = np.linspace(0, 1, 101)
    for colours in (colormaps["cividis"](shades), colormaps["Greys"](shades)):
        for colour in colours:
            linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
            luminance = np.dot(linear, (0.2126, 0.7152, 0.0722))
            ratio = (luminance + 0.05) / 0.05 if contrasting(colour) == "black" else 1.05 / (luminance + 0.05)
            assert ratio >= 4.5
    # An empty cell is white.
    assert contrasting((0.0, 0.0, 0.0, 0.0)) == "black"


def test_ticks_stand_where_something_was_measured() -> None:
    axes = Figure().subplots()
    axes.plot([0, 0.0005, 0.001, 0.004, 0.008], [0, 0, 0, 0, 0])
    ticks_at(axes, [0.001, 0, 0.0005, 0.004, 0.008], 2.0)
    assert list(axes.get_xticks()) == [0, 0.0005, 0.001, 0.004, 0.008]
    # 0.0005 and 0.001 are a tenth of an inch apart, and as near to 0.
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "", "", "0.004", "0.008"]
    ticks_at(axes, [0.001, 0, 0.0005, 0.004, 0.008], 20.0)
    assert "" not in {label.get_text() for label in axes.get_xticklabels()}


def transfer_scatter(accuracies: list[float]) -> tuple[Axes, pd.DataFrame]:
    """The lower panel of A3 for networks of these accuracies, each with three seeds, and the means."""
    rows = make_rows(("target", tuple("abcdefg"[: len(accuracies)])))
    rows["accuracy"] = np.repeat(accuracies, 3) + rng.normal(0, 0.1, len(rows))
    rows = rows.assign(transfer_rate=0.5 * rows["accuracy"] + rng.normal(size=len(rows)), attack="untargeted")
    matrix = rows.merge(rows[["target"]].drop_duplicates().rename(columns={"target": "row"}), how="cross")
    figure = plot_matrices_and_lines(matrix, rows, attacks=["untargeted"])
    # Of the first row, which stands above.
    assert figure.subfigs[1].axes[0].get_title().startswith("untargeted examples of a\n")
    assert not figure.legends
    assert {text.get_text() for text in figure.subfigs[1].legends[0].get_texts()} >= set(rows["target"])
    return figure.axes[1], rows.groupby("target")[["accuracy", "transfer_rate"]].mean()


def test_transfer_through_five_clusters_has_a_line_through_the_means() -> None:
    axes, means = transfer_scatter([10.0, 20.0, 30.0, 40.0, 50.0])
    slope, intercept = np.polyfit(means["accuracy"], means["transfer_rate"], 1)
    (fitted,) = (line for line in axes.lines if line.get_linestyle() == "-")
    np.testing.assert_allclose(fitted.get_ydata(), intercept + slope * np.asarray(fitted.get_xdata()))
    assert f"r = {np.corrcoef(means.T)[0, 1]:.2f} (95 % interval" in axes.get_title()
    # Five networks, five markers.
    assert len({line.get_marker() for line in axes.lines if line.get_markersize() == 7}) == 5


def test_transfer_through_two_clusters_has_points_and_r_alone() -> None:
    axes, means = transfer_scatter([2.0, 2.5, 39.0, 40.0, 41.0])
    assert not [line for line in axes.lines if line.get_linestyle() == "-"]
    assert axes.get_title().endswith(f"\nr = {np.corrcoef(means.T)[0, 1]:.2f}, not tested: 2 clusters")


@pytest.mark.parametrize(("values", "clusters"), [([1, 2, 3, 4, 5], 5), ([0, 1, 50, 51, 100], 3), ([7, 7], 1)])
def test_values_apart_by_more_than_a_tenth_of_the_range_are_clusters(values: list[float], clusters: int) -> None:
    assert count_clusters(values) == clusters


def test_a_bar_without_values_leaves_no_gap() -> None:
    rows = make_rows(("row", ("D", "D_det", "D_det-robust")))
    axes = grouped_bars(split_sources(rows), group="set", bar="source", xlabel="trained on").axes[0]
    bars = [patch for container in axes.containers if isinstance(container, BarContainer) for patch in container]
    middles = sorted(patch.get_x() + patch.get_width() / 2 for patch in bars)
    # D's one bar stands at its name, the two of D_det on both sides of theirs.
    assert middles[0] == pytest.approx(0)
    assert np.mean(middles[1:]) == pytest.approx(1)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["D", "D_det"]


def test_text_is_wrapped_where_it_is_wider() -> None:
    text = "accuracy under an attack with a long name (%)"
    wrapped = wrap(text, 1.5)
    assert wrapped.replace("\n", " ") == text
    assert all(text_width(line) <= 1.5 for line in wrapped.split("\n"))
    figure = Figure(figsize=(4, 4))
    canvas = FigureCanvasAgg(figure)
    drawn = figure.text(0, 0, text).get_window_extent(canvas.get_renderer())
    assert text_width(text) == pytest.approx(drawn.width / figure.dpi, rel=0.05)


@pytest.mark.parametrize(
    ("values", "ends"),
    [([99.0, 99.2], (80, 100)), ([43.0, 78.0], (40, 80)), ([1.0, 3.0], (0, 20)), ([0, 100], (0, 100))],
)
def test_an_axis_of_accuracies_does_not_magnify(values: list[float], ends: tuple[float, float]) -> None:
    assert accuracy_limits(pd.Series(values)) == ends


def test_images_are_shown_pixel_by_pixel_in_columns() -> None:
    pictures = rng.random((3, 3, 4, 4), dtype=np.float32)
    grey = rng.random((2, 1, 4, 4), dtype=np.float32)
    figure = image_grid(
        {"D": [ImageRow("original", pictures, ["cat", "dog", "e" * 40])], "D_rand": [ImageRow("x", grey)]}
    )
    (axes,) = figure.axes
    canvas = np.asarray(axes.images[0].get_array())
    assert axes.images[0].get_interpolation() == "none"
    factor = CELL // 4
    starts = []
    for picture in (*pictures, *grey):
        colours = np.broadcast_to(picture, (3, 4, 4)).transpose(1, 2, 0)
        whole = np.kron(colours, np.ones((factor, factor, 1), np.float32))
        corners = np.argwhere((canvas[: -CELL + 1, : -CELL + 1] == whole[0, 0]).all(axis=2))
        (found,) = [(y, x) for y, x in corners if (canvas[y : y + CELL, x : x + CELL] == whole).all()]
        starts.append(found)
    columns = [x for _, x in starts]
    assert columns[:2] == columns[3:]
    assert len({y for y, _ in starts[:3]}) == 1
    names = {text.get_text() for text in axes.texts}
    assert {"cat", "dog", "D", "D_rand", "original", f"{'e' * (LONGEST_LABEL - 1)}…"} <= names


def dataset(images: np.ndarray, labels: np.ndarray, *, target: bool, start: np.ndarray) -> ImageDataset:
    places = np.arange(len(images))
    columns = {
        "source_index": places,
        "source_label": places % 2,
        "target": labels if target else np.full(len(images), -1),
        "start_index": start,
    }
    return ImageDataset(images, labels, columns, ("cat", "dog"))


def test_changes_are_on_one_scale_and_inversions_show_their_start() -> None:
    images = rng.uniform(0.3, 0.7, (4, 1, 8, 8)).astype(np.float32)
    classes, other = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 0])
    none, turned = np.full(4, -1), np.array([3, 2, 1, 0])
    original = dataset(images, classes, target=False, start=none)
    derived = {
        "D_rand": dataset(images + 0.01, other, target=True, start=none),
        "D_det": dataset(images - 0.04, other, target=True, start=none),
        "D_R": dataset(images[::-1].copy(), classes, target=False, start=turned),
        "D_NR": dataset(images, classes, target=False, start=none),
    }
    (axes,) = sample_blocks(original, derived, images=4).axes
    titles = [text.get_text() for text in axes.texts]
    # The larger of the two changes, 0.04, may be magnified ten times before it leaves the range of half.
    assert titles.count("change x 10") == 2
    assert titles.count("started from") == 1
    assert (titles.count("cat"), titles.count("dog")) == (6, 6)
    canvas = np.asarray(axes.images[0].get_array())
    greys = {0.5 + 10 * 0.01, 0.5 - 10 * 0.04}
    for grey in greys:
        assert np.isclose(canvas, grey, atol=1e-5).all(axis=2).sum() == 4 * CELL**2


def test_the_magnification_shows_nearly_all_changes_whole() -> None:
    changes = [
        rng.normal(0, 0.01, (5, 3, 8, 8)).astype(np.float32),
        rng.normal(0, 0.02, (5, 3, 8, 8)).astype(np.float32),
    ]
    factor = choose_magnification(changes)
    everything = np.abs(np.concatenate(changes))
    assert np.mean(factor * everything > 0.5) <= 0.05
    assert np.mean(2 * factor * everything > 0.5) > 0.05
    assert choose_magnification([]) == 1


def bars() -> Figure:
    rows = pd.DataFrame([{"row": "standard", "eps": 0.0, "seed": seed, "accuracy": 90.0 + seed} for seed in (0, 1)])
    return grouped_bars(rows, group="row", bar="eps", xlabel="trained on")


def test_the_same_figure_has_the_same_bytes() -> None:
    assert render_figure(bars(), ["a warning"]) == render_figure(bars(), ["a warning"])


def test_many_panels_stand_in_even_rows() -> None:
    rows = make_rows(("row", tuple("abcd")), ("probe", ("train",)), ("epoch", (1, 2)))
    figure = curves(rows, panel="row", line="probe", x="epoch", xlabel="epoch")
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", "d"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy (%)", "", "accuracy (%)", ""]
    assert figure.get_figwidth() <= WIDEST


def test_a_warning_stands_in_the_figure() -> None:
    figure = bars()
    contents = render_figure(figure, ["white-box attacks are weaker than black-box ones"])
    assert "Warning: white-box attacks" in figure.texts[-1].get_text()
    height = int.from_bytes(contents[".png"][20:24], "big")
    assert height > figure.get_figheight() * DPI
