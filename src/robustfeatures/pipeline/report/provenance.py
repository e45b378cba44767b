"""The provenance of a table or a figure as text, made from the recipes that it builds on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import join_words, make_printable

if TYPE_CHECKING:
    from robustfeatures.experiments.experiment import Experiment, Results

# The heading of each stage's recipes, in the order of the lines.
STAGES = {
    "data": "Data",
    "model": "Network",
    "derived": "Derived set",
    "evaluation": "Evaluation",
    "measurement": "Measurement",
}
# Fields that have a line of their own, or that follow from the others.
SHOWN_ELSEWHERE = frozenset({"seed", "precision", "compile", "probes"})
# Fields whose value is clear without the field's name.
SELF_EXPLANATORY = frozenset({"name", "kind", "source", "architecture", "module"})
# Fields whose own fields are clear without their name.
CONTAINERS = frozenset({"architecture", "training", "method", "settings"})
# A line with more differences is written out.
MOST_DIFFERENCES = 4
LONGEST = 600
# A list with more numbers is shown by their range and count.
MOST_NUMBERS = 10
MOST_LABELS = 8


def describe_provenance(
    experiment: Experiment, results: Results, record: Mapping[str, Any], recipes: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Lines on how a view was made: study, data, networks, attacks with their steps, seeds, published values.

    `record` is the view's, `recipes` are the records of all recipes that it builds on.
    """
    seeds = sorted({need["seed"] for part in record["parts"] for need in part["needs"]})
    lines = [f"Study: {record['study']}, {record['title']}; {record['precision']}."]
    lines += describe_recipes(recipes)
    if seeds:
        lines.append(f"Seeds: {', '.join(map(str, seeds))}.")
    lines.append(f"Paper: {experiment.paper}. {_describe_published(experiment, results)}")
    target = next(name for name in record["outputs"] if not name.endswith((".txt", ".pdf")))
    # `--config` takes all words that follow it, so the target comes first.
    lines.append(f"To make it alone: snakemake --cores all results/{target} --config study={record['study']}")
    return [make_printable(line) for line in lines]


def describe_recipes(recipes: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for all recipes with the same parameters, from data to measurements.

    A line whose settings differ from those of an earlier one of its stage in a few fields names these alone. Its inputs
    may be others.
    """
    stages: dict[str, list[_Line]] = {stage: [] for stage in STAGES}
    for recipe in recipes:
        lines, shown = stages[recipe["stage"]], _keep_shown(recipe["parameters"])
        line = next((line for line in lines if line.parameters == shown), None)
        if line is None:
            lines.append(line := _Line(shown))
        if recipe["family"] not in line.labels:
            line.labels.append(recipe["family"])
    return [
        f"{STAGES[stage]} {_join_labels(line.labels)}: {_describe_beside(line, _find_clear(lines, place))}."
        for stage, lines in stages.items()
        for place, line in enumerate(lines)
    ]


@dataclass(frozen=True)
class _Line:
    """The parameters that are shown, and what has them."""

    parameters: dict[str, Any]
    labels: list[str] = field(default_factory=list)


def _find_clear(lines: Sequence[_Line], place: int) -> list[_Line]:
    """The earlier lines of the same kind whose first label is that of no other line."""
    this = lines[place].parameters
    counts = Counter(label for line in lines for label in line.labels)
    return [
        line
        for line in lines[:place]
        if counts[line.labels[0]] == 1
        and line.parameters.keys() == this.keys()
        and _find_kind(line.parameters) == _find_kind(this)
    ]


def _find_kind(parameters: Mapping[str, Any]) -> tuple[object, ...]:
    method = parameters.get("method")
    return parameters.get("module"), parameters.get("source"), method and method.get("kind")


def _describe_beside(line: _Line, earlier: Sequence[_Line]) -> str:
    """The parameters in words, or what differs from the earlier line that is most alike."""
    found = [(other.labels[0], list(_differences(other.parameters, line.parameters))) for other in earlier]
    label, differences = min(found, key=lambda each: len(each[1]), default=("", []))
    if label and len(differences) <= MOST_DIFFERENCES:
        return f"with the settings of {label}, but {', '.join(differences)}"
    return _describe_parameters(line.parameters)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The fields of `new` that `old` has not, in words."""
    for name in {**new, **old}:
        before, now = old.get(name), new.get(name)
        words = name.replace("_", " ")
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            yield from _differences(before, now, "" if name in CONTAINERS else f"{words} ")
        elif text := _text(now):
            yield f"{within}{_field(name, text, now)}"
        else:
            yield f"no {within}{words}"


def make_caption(experiment: Experiment, results: Results, made: Iterable[str]) -> str:
    """The caption of a figure: title, description, warnings, and the lines of its provenance (`made`)."""
    warnings = [f"Warning: {make_printable(note)}" for note in results.notes]
    shown = describe_what_is_shown(experiment, results)
    return "\n\n".join([f"{experiment.id}: {experiment.title}", shown, *warnings, *made]) + "\n"


def describe_what_is_shown(experiment: Experiment, results: Results) -> str:
    """The experiment's own caption, with the attacks of this study."""
    return experiment.caption.replace("{attack}", results.attack)


def _describe_published(experiment: Experiment, results: Results) -> str:
    if results.published is None:
        return "It prints no numbers to compare with."
    where = f"{results.published_source}, {results.published_setting}"
    if results.comparable and not experiment.marks_published:
        return f"Published values, shown in the table alone: {where}."
    if results.comparable:
        return f"Published values, shown as hollow diamonds where the paper prints them: {where}."
    return f"Published values ({where}): data or networks are not this study's, so nothing is compared with them."


def _join_labels(labels: list[str]) -> str:
    more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    return f"{', '.join(labels[:MOST_LABELS])}{more}"


def _keep_shown(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a recipe without the fields that are shown elsewhere."""
    kept = {name: value for name, value in parameters.items() if name not in SHOWN_ELSEWHERE}
    if isinstance(kept.get("settings"), dict):
        kept["settings"] = {name: value for name, value in kept["settings"].items() if name not in SHOWN_ELSEWHERE}
    return kept


def _describe_parameters(parameters: Mapping[str, Any]) -> str:
    """The parameters in words, the module of a measurement first."""
    others = {name: value for name, value in parameters.items() if name != "module"}
    text = "; ".join(part for part in (parameters.get("module"), _text(others)) if part)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _text(value: Any) -> str:
    """A JSON value in words, without fields that are empty or off."""
    match value:
        case dict():
            fields = {name: _text(each) for name, each in value.items()}
            return ", ".join(_field(name, text, value[name]) for name, text in fields.items() if text)
        case [*numbers] if len(numbers) > MOST_NUMBERS and all(isinstance(each, int | float) for each in numbers):
            return f"from {_text(min(numbers))} to {_text(max(numbers))} ({len(numbers)} values)"
        case list():
            return join_words([f"({_text(each)})" if isinstance(each, dict) else _text(each) for each in value])
        case None | False:
            return ""
        case True:
            return "yes"
        case float():
            return f"{value:g}"
    return str(value)


def _field(name: str, text: str, value: Any) -> str:
    if name in SELF_EXPLANATORY:
        return text
    return f"{name.replace('_', ' ')} ({text})" if isinstance(value, dict) else f"{name.replace('_', ' ')} {text}"
