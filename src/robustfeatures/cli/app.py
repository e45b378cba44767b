"""What the commands share: the Typer app, options, and how they read and print."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustfeatures.errors import StoppedError, make_printable
from robustfeatures.files import expand_home

if TYPE_CHECKING:
    from rich.console import Console

    from robustfeatures.pipeline.store.store import Store
    from robustfeatures.pipeline.study.config import Config

app = typer.Typer(
    help="Robust and non-robust features: jobs of the workflow, and commands to inspect its results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Reference = Annotated[Path, typer.Argument(help="results/artifacts/<stage>/<label>-<digest>.json")]
References = Annotated[list[Path], typer.Argument(help="results/artifacts/<kind>/<label>-<digest>.json")]
Artifact = Annotated[str, typer.Argument(help="A label, as `list` prints it, or the path of a reference.")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", envvar="ROBUSTFEATURES_STORE", help="The folder of payloads; by default that of config.yaml."
    ),
]
LogOption = Annotated[Path | None, typer.Option("--log", help="The log file; by default the terminal.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="The configuration file.")]
StudyOption = Annotated[str | None, typer.Option("--study", help="A study in place of the configured one.")]
# For a label with several builds.
BuildsOption = Annotated[
    str | None,
    typer.Option(
        "--study", help="Only the build of this study; by default that of the configured one, if there are several."
    ),
]

CONFIG = Path("config.yaml")
ARTIFACTS = Path("results/artifacts")
STUDIES = Path("workflow/studies")
RAW = Path("results/raw")
# Columns of the output to a file or another program.
WIDTH_OF_FILES = 200


def stop(*_: object) -> None:
    """A handler of SIGTERM.

    A second signal, which Slurm and Snakemake may both pass on, does not cut the message of the first.

    Raises:
        StoppedError: the program is not ending already.
    """
    if isinstance(sys.exception(), StoppedError):
        return
    raise StoppedError("stopped by SIGTERM; run again, and it goes on from what is finished")


def read_configuration(path: Path, study: str | None = None) -> Config:
    """The configuration in a file, with `study` in place of its own.

    Raises:
        UserError: a field is wrong, or there is no such study.
    """
    from robustfeatures.pipeline.study.config import read_config
    from robustfeatures.pipeline.study.study import find_study
    from robustfeatures.pipeline.study.yaml import read_yaml

    values = read_yaml(path)
    given = {} if study is None else {"study": study}
    config = read_config(
        {**values, **given} if isinstance(values, dict) else values, str(path), {"study": "--study"} if given else {}
    )
    # Who reads the default file may want no more than its store. The plan looks for the study.
    if study is not None or path != CONFIG:
        find_study(STUDIES, config.study, f"{path}: study" if study is None else "--study")
    return config


def find_artifact(artifact: str, study: str | None = None) -> Path:
    """The reference that a label or a path names: the build of `study`, or of several that of the configured study.

    Raises:
        UserError: no artifact, or several, are called so; or `study` has not built it.
    """
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.tools.finding import find_reference

    def planned() -> set[str]:
        plan = unfold(read_configuration(CONFIG, study), STUDIES)
        return {*plan.recipes, *(view.artifact for view in plan.views)}

    return find_reference(artifact, Artifacts(ARTIFACTS), planned, study)


def find_store(given: Path | None, configured: Config | None = None) -> Store:
    """The given store, or that of a configuration, by default of config.yaml.

    Raises:
        UserError: another version of this package wrote the store.
    """
    from robustfeatures.pipeline.store.format import check_format
    from robustfeatures.pipeline.store.store import Store

    root = Path((configured or read_configuration(CONFIG, None)).store) if given is None else expand_home(given)
    check_format(root)
    return Store(root)


def make_console() -> Console:
    """A console for tables, on the terminal or into a file."""
    from rich.console import Console

    # What is read by a program has no terminal whose width it should keep.
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line as it comes, without what could move a terminal's cursor."""
    for line in lines:
        typer.echo(make_printable(line))


def log_to(path: Path | None) -> None:
    """Append the log to a file, or print its warnings."""
    # On a full disk, errors of logging must not hide the one line that says so.
    logging.raiseExceptions = False
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    # The log is appended to, because the first try of a job may still be running on another machine.
    handler = logging.FileHandler(path, encoding="utf-8") if path else logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    # On a terminal the progress bar replaces the log.
    logging.basicConfig(level=logging.INFO if path else logging.WARNING, handlers=[handler], force=True)


class _OneLine(logging.Formatter):
    """One line for each message, so that no name in it can look like another line. Tracebacks have several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return make_printable(super().formatMessage(record))
