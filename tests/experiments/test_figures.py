"""Every experiment's figure, drawn from made-up results: nothing is cut, overlaps, hides data or lacks a label."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.shared.plots.style import WIDEST
from tests.experiments.made_up import make_up, parts
from tests.experiments.shared.layout import find_faults
from tests.experiments.test_toy_models import SETTINGS as TOYS

SMALL = "digits-full"
# A study whose bars and names are more and longer, with the experiments that this concerns.
LARGE = {"not-bugs-cifar10": ("A1", "A2", "A3", "A5", "A8", "A11", "X4")}
DRAWN = [(SMALL, identifier) for identifier in parts(SMALL) if identifier not in TOYS]
DRAWN += [(study, identifier) for study, chosen in LARGE.items() for identifier in chosen]
# A sentence with more words is read twice. A formula counts as one word.
MOST_WORDS = 25
RELABELLING = "t(y) = (y + 1) mod C"


@pytest.mark.parametrize(("study", "identifier"), DRAWN)
def test_nothing_is_cut_overlaps_or_lacks_a_label(study: str, identifier: str, tmp_path: Path) -> None:
    experiment, results = make_up(study, identifier, tmp_path)
    assert experiment.figure is not None
    assert find_faults(experiment.figure(results)) == []


@pytest.mark.parametrize(
    ("study", "identifier"),
    [
        *((SMALL, each) for each in ("A1", "A4", "B1", "B3", "C7", "D3", "D4")),
        *(("not-bugs-cifar10", each) for each in ("A5", "A8")),
        ("at-odds-cifar10", "C3"),
    ],
)
def test_figures_mark_published_values_where_captions_say_so(study: str, identifier: str, tmp_path: Path) -> None:
    experiment, results = make_up(study, identifier, tmp_path)
    assert results.comparable
    assert experiment.figure is not None
    drawn = experiment.figure(results)
    words = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    assert ("published" in words) == experiment.marks_published
    marks = [line for axes in drawn.axes for line in axes.lines if line.get_marker() == "D" and len(line.get_xydata())]
    assert bool(marks) == experiment.marks_published


def test_one_seed_has_neither_whiskers_nor_bands(tmp_path: Path) -> None:
    experiment, results = make_up(SMALL, "A1", tmp_path, seeds=1)
    assert experiment.figure is not None
    (axes,) = experiment.figure(results).axes
    whiskers = [container.errorbar for container in axes.containers if getattr(container, "errorbar", None)]
    assert whiskers
    for caps in (cap for whisker in whiskers for cap in whisker[1]):
        assert not any(y == y for y in caps.get_ydata())


def test_everything_that_has_a_figure_is_drawn() -> None:
    drawn = {identifier for _, identifier in DRAWN} | set(TOYS)
    # A9 has the figure of A1.
    assert drawn == {each for each in experiment_modules() if load_experiment(each).figure is not None} - {"A9"}


@pytest.mark.parametrize("identifier", experiment_modules())
def test_captions_have_short_sentences(identifier: str) -> None:
    caption = load_experiment(identifier).caption.replace(RELABELLING, "t(y)")
    sentences = re.split(r"(?<=[.!?\"])\s+(?=[A-Z\"])", caption)
    assert [sentence for sentence in sentences if len(sentence.split()) > MOST_WORDS] == []


def faulty(name: str) -> Figure:
    """A figure with one fault."""
    figure = Figure(figsize=(WIDEST + 1 if name == "wide" else 4, 3))
    axes = figure.add_axes((0.2, 0.2, 0.6, 0.6))
    axes.plot([0, 1], [0, 1], color="red", label="red")
    axes.plot([0, 1], [1, 0], color="blue", label="blue")
    handles, _ = axes.get_legend_handles_labels()
    if name == "overlap":
        axes.text(0.5, 0.5, "one text")
        axes.text(0.52, 0.5, "another text")
    if name == "cut":
        axes.set_ylabel("a label that is much longer than the figure is high, so that both of its ends are cut off")
    if name == "small":
        axes.set_title("small", fontsize=4)
    if name == "covers":
        axes.legend(handles=handles, loc="center")
    else:
        figure.legend(handles=handles[:1] if name == "no label" else handles, loc="upper center", ncols=2)
    return figure


@pytest.mark.parametrize("name", ["overlap", "cut", "small", "covers", "no label", "wide"])
def test_each_fault_is_found(name: str) -> None:
    (fault,) = find_faults(faulty(name))
    assert name in fault


def test_a_figure_without_faults_has_none() -> None:
    assert find_faults(faulty("")) == []
