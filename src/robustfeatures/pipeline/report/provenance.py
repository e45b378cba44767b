"""The provenance of a table or a figure as text, made from the recipes that it builds on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
SHOWN_ELSEWHERE = frozenset({"seed", "precision", "compile", "probes", "module"})
# Fields whose value is clear without the field's name.
SELF_EXPLANATORY = frozenset({"name", "kind", "source", "architecture"})
LONGEST = 600
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
    """A line for all recipes with the same parameters, from data to measurements."""
    labels_by_text: dict[str, dict[str, list[str]]] = {stage: {} for stage in STAGES}
    for recipe in recipes:
        labels = labels_by_text[recipe["stage"]].setdefault(_describe_parameters(recipe), [])
        if recipe["family"] not in labels:
            labels.append(recipe["family"])
    return [
        f"{STAGES[stage]} {_join_labels(labels)}: {text}."
        for stage, texts in labels_by_text.items()
        for text, labels in texts.items()
    ]


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


def _describe_parameters(recipe: Mapping[str, Any]) -> str:
    """The parameters of one recipe as text, without the fields that are shown elsewhere."""
    kept = _drop_shown_elsewhere(recipe["parameters"])
    if isinstance(kept.get("settings"), dict):
        kept["settings"] = _drop_shown_elsewhere(kept["settings"])
    module = recipe["parameters"].get("module")
    text = "; ".join(part for part in (module, _text(kept)) if part)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _drop_shown_elsewhere(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in SHOWN_ELSEWHERE}


def _text(value: Any) -> str:
    """A JSON value in words, without fields that are empty or off."""
    match value:
        case dict():
            fields = {name: _text(each) for name, each in value.items()}
            return ", ".join(_field(name, text, value[name]) for name, text in fields.items() if text)
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
