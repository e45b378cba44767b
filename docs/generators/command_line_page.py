"""The page on the command line."""

from __future__ import annotations

import typer
from typer.cli import get_docs_for_click

from robustfeatures.cli import app

HEAD = """# Command line

Snakemake's jobs run `build` and `view`. The other commands are for people, at the root of the repository.

"""


def make_command_line_page() -> str:
    """Every command with its arguments and options, as typer documents them."""
    group = typer.main.get_group(app)
    for command in group.commands.values():
        # Typer cuts what the list of commands says, but not what is called short.
        command.short_help = (command.help or "").partition("\n")[0]
    text = get_docs_for_click(obj=group, ctx=typer.Context(group), indent=0, name="robustfeatures")
    return HEAD + text.partition("\n\n")[2].rstrip() + "\n"
