"""All generated files."""

from __future__ import annotations

from pathlib import Path

from docs.generators.command_line_page import make_command_line_page
from docs.generators.experiment_pages import make_experiment_page, make_index_page
from docs.generators.python_page import make_python_page
from docs.generators.schemas import find_identifiers, make_config_schema, make_study_schema, to_text
from docs.generators.study_page import make_study_page

REPOSITORY = Path(__file__).parents[2]


def make_files() -> dict[str, str]:
    """The text of every generated file, by its path in the repository."""
    return {
        "workflow/schemas/study.schema.json": to_text(make_study_schema()),
        "workflow/schemas/config.schema.json": to_text(make_config_schema()),
        "docs/reference/study.md": make_study_page(),
        "docs/reference/command-line.md": make_command_line_page(),
        "docs/reference/python.md": make_python_page(),
        "docs/experiments/index.md": make_index_page(),
        **{f"docs/experiments/{identifier}.md": make_experiment_page(identifier) for identifier in find_identifiers()},
    }
