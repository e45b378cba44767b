"""The page on the fields of study files and of config.yaml."""

from __future__ import annotations

from docs.generators.fields import Tables
from docs.generators.schemas import find_identifiers, make_config_schema, make_schemas
from robustfeatures.experiments.catalogue import load_experiment

PAGE = "reference/study.md"
HEAD = """# Study file

A study is a file of `workflow/studies/`. Here are its fields, and those of [config.yaml](#configyaml).

- Radii and step sizes have the unit of pixels in [0, 1]. Fractions such as `8/255` are numbers. Radii, step sizes,
  rates and decays are below 1e9.
- A field that is not listed is an error. `snakemake -n --config study=NAME` checks a study.
- `extends: NAME` takes another study of the folder, and the file then has only what it changes. Fields are merged by
  name, lists and single values replace what was there, and `null` removes it. A network with another `name` is new.
  `"*": null`, with the quotes, removes all names that the file does not have beside it.
- Editors with a YAML language server check and complete a study whose first line is
  `# yaml-language-server: $schema=../schemas/study.schema.json`; `robustfeatures new` writes it.
"""
CONFIG = """Which study to build, where, and how its work is divided into jobs. A default stands where the file
lacks the field."""


def make_study_page() -> str:
    """All classes of a study file, in the order in which they are named."""
    definitions, names = make_schemas()
    tables = Tables(definitions, {})
    lines = [HEAD, *tables.section("Study", 2)]
    for name in tables.named(definitions["Study"]):
        lines += tables.section(name, 3)
    lines += ["## Experiments", "", "Each experiment has a page with its settings. All of them take `seeds`.", ""]
    lines += ["| experiment | settings |", "|---|---|"]
    for identifier in find_identifiers():
        fields = ", ".join(f"`{field}`" for field in definitions[names[identifier]].get("properties", ()))
        link = f"[{identifier}: {load_experiment(identifier).title}](../experiments/{identifier}.md)"
        lines.append(f"| {link} | {fields or 'none'} |")
    config = make_config_schema()
    lines += ["", "## config.yaml", "", CONFIG, ""]
    lines += tables.table(config)
    return "\n".join(lines).rstrip() + "\n"
