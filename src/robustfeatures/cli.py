"""The command line: the jobs of the workflow, and commands for people."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from robustfeatures.errors import UserError, make_printable

if TYPE_CHECKING:
    from robustfeatures.pipeline.store.store import Store
    from robustfeatures.pipeline.study.config import Config

app = typer.Typer(
    help="Robust and non-robust features: jobs of the workflow, and commands to inspect its results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Reference = Annotated[Path, typer.Argument(help="results/artifacts/<stage>/<label>-<digest>.json")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", envvar="ROBUSTFEATURES_STORE", help="The folder of payloads; by default that of config.yaml."
    ),
]
LogOption = Annotated[Path | None, typer.Option("--log", help="The log file; by default the terminal.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="The configuration file.")]
StudyOption = Annotated[str | None, typer.Option("--study", help="A study in place of the configured one.")]

CONFIG = Path("config.yaml")
ARTIFACTS = Path("results/artifacts")
STUDIES = Path("workflow/studies")
RAW = Path("results/raw")


@app.command()
def build(
    reference: Reference,
    store: StoreOption = None,
    raw: Annotated[Path, typer.Option(envvar="ROBUSTFEATURES_RAW", help="The folder of downloads.")] = RAW,
    device: Annotated[str, typer.Option(envvar="ROBUSTFEATURES_DEVICE", help="auto, cpu or cuda.")] = "auto",
    share_gpus: Annotated[
        bool,
        typer.Option(
            envvar="ROBUSTFEATURES_SHARE_GPUS", help="Use one GPU that no other job of this machine uses, or none."
        ),
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads for torch.")] = 1,
    part: Annotated[int | None, typer.Option(help="Make only this part, counted from 1.")] = None,
    parts: Annotated[int, typer.Option(help="Of so many parts.")] = 1,
    log: LogOption = None,
) -> None:
    """Make an artifact of a planned study, or a batch of them: find each payload in the store, or compute it."""
    from robustfeatures.pipeline.run import job as jobs
    from robustfeatures.pipeline.run.blocks import Share

    _log_to(log)
    # The default would end the process at once. An error releases its locks first, so that no other job waits.
    signal.signal(signal.SIGTERM, _stop)
    terminal = log is None and sys.stderr.isatty()
    environment = jobs.Environment(_store(store), raw, device, threads, terminal, share_gpus)
    if part is None:
        jobs.build(reference, environment)
    else:
        jobs.build_part(reference, Share(part, parts), environment)


@app.command()
def view(reference: Reference, store: StoreOption = None, log: LogOption = None) -> None:
    """Write one table, figure, claims file or page of a planned study."""
    from robustfeatures.pipeline.report.building import build_view

    _log_to(log)
    build_view(reference, store=_store(store))


@app.command()
def show(reference: Reference, store: StoreOption = None) -> None:
    """Print one artifact: its stage, settings, inputs, numbers, cost and folder."""
    from robustfeatures.tools.show import show as lines

    _print(lines(reference, _store(store)))


@app.command()
def why(reference: Reference) -> None:
    """Print the recipes that an artifact builds on, and its differences from the newest earlier build of its label."""
    from robustfeatures.tools.why import why as lines

    _print(lines(reference))


@app.command()
def status(config: ConfigOption = CONFIG, study: StudyOption = None) -> None:
    """Print the missing artifacts of a study, and the running jobs with their progress and the time left."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.pipeline.store.store import Store
    from robustfeatures.tools.status import status as lines

    configured = _config(config, study)
    _print(lines(unfold(configured, STUDIES), Artifacts(ARTIFACTS), Store(Path(configured.store))))


@app.command()
def fetch(config: ConfigOption = CONFIG, study: StudyOption = None) -> None:
    """Download and check a study's raw data, for machines without internet; check your own files."""
    from robustfeatures.pipeline.study.study import find_study
    from robustfeatures.tools import fetching

    configured = _config(config, study)
    _print(fetching.fetch(find_study(STUDIES, configured.study), Path(configured.raw)))


@app.command()
def verify(
    store: StoreOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged payloads to .damaged/ in the store, to be made anew.")
    ] = False,
) -> None:
    """Hash every file of the store and print the damaged ones; exit code 1 if a damaged file is left in place."""
    from robustfeatures.tools.verify import verify as lines

    damaged = list(lines(_store(store), repair=repair))
    _print(damaged or ["every payload is whole"])
    if damaged and not repair:
        raise typer.Exit(1)


@app.command()
def accept(
    reason: Annotated[str, typer.Option("--reason", help="Why the numbers are the same; kept with the acceptance.")],
    check: Annotated[str, typer.Option("--check", help="How many of each stage to make again, or all.")] = "3",
    config: ConfigOption = CONFIG,
    study: StudyOption = None,
) -> None:
    """Keep a study's payloads after a refactoring, if the cheapest of each stage, made again, have the same bytes."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.store import Store
    from robustfeatures.tools.accept import accept as lines

    if check != "all" and not (check.isdecimal() and int(check) > 0):
        raise UserError(f"--check: {check!r} is neither all nor a number above 0")
    configured, count = _config(config, study), None if check == "all" else int(check)
    plan, store = unfold(configured, STUDIES), Store(Path(configured.store))
    _print(lines(plan, configured.study, store, Path(configured.raw), check=count, reason=reason))


@app.command()
def export(
    reference: Annotated[Path, typer.Argument(help="A reference, a payload's folder or a data.zarr.")],
    out: Annotated[Path, typer.Argument(help="A new folder, or for npz a new file.")],
    form: Annotated[Literal["folder", "npz", "constructed"], typer.Option("--format", help="What to write.")],
    split: Annotated[str | None, typer.Option("--split", help="Only this split; by default all.")] = None,
    store: StoreOption = None,
) -> None:
    """Write a data set as an image folder, an .npz file or torch tensors, and print what the format loses."""
    from robustfeatures.tools import exporting

    signal.signal(signal.SIGTERM, _stop_export)
    # Only a reference needs a store. A data.zarr may be in a place without config.yaml.
    root = _store(store).root if reference.suffix == ".json" else store
    _print(exporting.export(reference, out, form, split=split, store=root))


@app.command()
def gc(
    config: ConfigOption = CONFIG,
    study: Annotated[list[str] | None, typer.Option("--study", help="A study to keep; may be repeated.")] = None,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Also checkpoints and blocks no job is at work on, and damaged payloads."),
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove them; otherwise they are only listed.")] = False,
) -> None:
    """List or remove leftovers, and the payloads that the configured study (or the named ones) does not use."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.pipeline.store.store import Store, discard
    from robustfeatures.tools.gc import leftovers, unreachable

    configured = [_config(config, name) for name in (study or (None,))]
    store = Store(Path(configured[0].store))
    plans = [unfold(one, STUDIES) for one in configured]
    said = "removed" if delete else "would remove"
    for key in unreachable(plans, Artifacts(ARTIFACTS), store):
        if delete:
            store.remove(key)
        _print([f"{said} {store.payload(key)}"])
    for folder in leftovers(store, unfinished=unfinished):
        if delete:
            discard(folder)
        _print([f"{said} {folder}"])


def _stop(*_: object) -> None:
    raise UserError("stopped by SIGTERM; run again, and it goes on from what is finished")


def _stop_export(*_: object) -> None:
    # The default would end the process at once. An error removes the half-written export first.
    raise UserError("stopped by SIGTERM, and what was half-written is removed; run again")


def _config(path: Path, study: str | None) -> Config:
    from robustfeatures.pipeline.study.config import read_config
    from robustfeatures.pipeline.study.yaml import read_yaml

    values = read_yaml(path)
    return read_config({**values, "study": study} if study and isinstance(values, dict) else values)


def _store(given: Path | None) -> Store:
    from robustfeatures.pipeline.store.store import Store

    return Store(given if given is not None else Path(_config(CONFIG, None).store))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(make_printable(line))


def _log_to(path: Path | None) -> None:
    # On a full disk, errors of logging must not hide the one line that says so.
    logging.raiseExceptions = False
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    # The log is appended to, because the first try of a job may still be running on another machine.
    handler = logging.FileHandler(path, encoding="utf-8") if path else logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    # On a terminal the progress bar replaces the log.
    logging.basicConfig(level=logging.INFO if path else logging.WARNING, handlers=[handler])


class _OneLine(logging.Formatter):
    """One line for each message, so that no name in it can look like another line. Tracebacks have several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return make_printable(super().formatMessage(record))


def main() -> None:
    """Run the command line. An error that the user can fix is one line on standard error, with exit code 1."""
    try:
        code = app(standalone_mode=False) or 0
    except UserError as error:
        code = _complain(str(error))
    except OSError as error:
        where = error.filename if error.filename is not None else "disk"
        code = _complain(f"{where}: {error.strerror or error}")
    except typer.Abort as abort:
        # Typer also turns every EOFError into an abort. No command reads input, so an EOFError here is a bug.
        if isinstance(abort.__cause__, EOFError):
            logging.getLogger(__name__).exception("unexpected error", exc_info=abort.__cause__)
            raise abort.__cause__ from None
        code = 130
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # click's usage errors
            code = _complain(error.format_message(), error.exit_code)
        else:
            logging.getLogger(__name__).exception("unexpected error")
            raise
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    # This skips Python's teardown of torch, which takes 0.4 s in each of a study's many short jobs.
    os._exit(code)


def _complain(message: str, code: int = 1) -> int:
    line = make_printable(" ".join(message.split()))
    if any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger().handlers):
        logging.getLogger(__name__).error("%s", line)
    print(f"robustfeatures: {line}", file=sys.stderr)
    return code
