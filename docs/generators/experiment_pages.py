"""A page for each experiment, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pandas as pd
import yaml

from docs.generators.fields import Tables, show_cell
from docs.generators.results import DOCS, count_claims, find_claims, find_studies, shows_photographs
from docs.generators.schemas import find_identifiers, make_schemas
from robustfeatures.tools.describe import Description, find_description

STUDIES = DOCS.parent / "workflow" / "studies"
# Where there is a choice, settings are those of the study that has nearly all experiments.
PREFERRED = "digits-full"
COLUMNS = ("experiment", "what it shows", "on photographs", "on digits and toy models")
STUDY_PAGE = "../reference/study.md"
STAGES = {
    "data": "data set",
    "model": "trained network",
    "derived": "derived set",
    "evaluation": "evaluation",
    "measurement": "measurement",
}


@cache
def describe_experiment(identifier: str) -> Description:
    """What is known of an experiment."""
    return find_description(identifier, STUDIES, PREFERRED)


def make_experiment_page(identifier: str) -> str:
    """Title, paper, what it shows, what it needs, and what was found."""
    found = describe_experiment(identifier)
    lines = [f"# {identifier}: {found.experiment.title}", "", f"Paper: [{found.paper}]({found.url})", ""]
    lines += [_begin_sentence(found), *found.shows[1:], ""]
    if found.experiment.caption:
        lines += [f"Figure: {found.experiment.caption.format(attack='the attacks of the study')}", ""]
    lines += ["## What it needs", "", *_list_needs(found), "", *_list_settings(found), "## Results", ""]
    for study in find_studies(identifier):
        lines += _list_results(study, identifier)
    if not find_studies(identifier):
        lines += ["It has not been run at a size whose results are kept here.", ""]
    return "\n".join(lines).rstrip() + "\n"


def make_index_page() -> str:
    """All experiments by paper, with the verdicts of each study."""
    lines = ["# Experiments", "", "One page for each experiment: what it shows, what it needs, and what was found."]
    lines += ["The last columns count the sentences of the paper by verdict, for each study that is kept here."]
    paper = ""
    for identifier in find_identifiers():
        found = describe_experiment(identifier)
        title = "Controls" if identifier.startswith("X") else f"[{found.paper}]({found.url})"
        if title != paper:
            lines += ["", f"## {title}", "", f"| {' | '.join(COLUMNS)} |", "|---|---|---|---|"]
            paper = title
        studies = find_studies(identifier)
        link = f"[{identifier}: {found.experiment.title}]({identifier}.md)"
        results = [
            "<br>".join(_count_results(study, identifier) for study in studies if shows_photographs(study) is shown)
            for shown in (True, False)
        ]
        # A toy model uses nothing of a study.
        lacking = ("not run" if found.uses else "toy model", "not run")
        shown_results = (each or otherwise for each, otherwise in zip(results, lacking, strict=True))
        cells = [link, show_cell(_begin_sentence(found)), *shown_results]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _count_results(study: str, identifier: str) -> str:
    counts = count_claims(study, identifier)
    return f"[{study}](../{study}/README.md)" + (f": {counts}" if counts else "")


def _begin_sentence(found: Description) -> str:
    text = found.shows[0].removeprefix(f"{found.experiment.id}: ")
    return text[0].upper() + text[1:]


def _list_needs(found: Description) -> Iterator[str]:
    if found.uses:
        yield f"In the study `{found.example}`, with the settings below, it uses:"
        yield ""
        for field, names in found.uses.items():
            yield f"- `{field}`" + (f": {', '.join(f'`{name}`' for name in names)}" if names else "")
    else:
        yield "It needs no data and no networks of a study. It makes its own points."
    counts = (f"{count} {STAGES[stage]}{'s' * (count > 1)}" for stage, count in found.reads.items())
    yield ""
    yield f"With one seed it reads {', '.join(counts)}."


def _list_settings(found: Description) -> Iterator[str]:
    definitions, names = make_schemas()
    of_studies = Tables(definitions, {}).named(definitions["Study"])
    tables = Tables(definitions, dict.fromkeys(of_studies, STUDY_PAGE))
    schema = definitions[names[found.experiment.id]]
    yield from ("## Settings", "", schema["description"], "", *tables.table(schema))
    for name in tables.named(schema):
        if name not in of_studies:
            yield from tables.section(name, 3)
    # A study of the reader's own is not in these pages.
    known = "".join((DOCS / page).read_text() for page in ("studies.md", "results.md"))
    study, given = next((name, given) for name, given in found.studies.items() if f"`{name}`" in known)
    text = yaml.safe_dump({found.experiment.id: dict(given)}, sort_keys=False, default_flow_style=None, width=100)
    yield from (f"In the study `{study}`:", "", "```yaml", *text.splitlines(), "```", "")


def _list_results(study: str, identifier: str) -> Iterator[str]:
    yield from (f"### {study}", "")
    links = [f"[the study](../{study}/README.md)"]
    if (DOCS / study / f"{identifier}.md").exists():
        links.insert(0, f"[tables and settings](../{study}/{identifier}.md)")
    counts = count_claims(study, identifier)
    yield from (f"See {' and '.join(links)}. {f'Sentences: {counts}.' if counts else ''}".rstrip(), "")
    if (DOCS / study / f"{identifier}.png").exists():
        yield from (f"![The figure of {identifier} in the study {study}](../{study}/{identifier}.png)", "")
    claims = find_claims(study, identifier)
    if claims:
        yield from ("| sentence | measured | value (95 % interval) | verdict |", "|---|---|---|---|")
    above = ""
    for claim in claims:
        sentence = f"{claim['claim']}{' (control)' if claim['control'] else ''} ({claim['source']})"
        measured = f"{claim['setting']}: {claim['quantity']}" if claim["setting"] else claim["quantity"]
        # A sentence with several settings stands beside the first of them.
        cells = ("" if sentence == above else sentence, measured, _show_value(claim), claim["verdict"])
        above = sentence
        yield f"| {' | '.join(show_cell(cell) for cell in cells)} |"
    yield ""


def _show_value(claim: Mapping[str, Any]) -> str:
    interval = f" ({claim['low']:.3g} to {claim['high']:.3g})" if pd.notna(claim["low"]) else ""
    threshold = f", must exceed {claim['threshold']:g}" if claim["threshold"] else ""
    return f"{claim['value']:.3g}{interval}{threshold}"
