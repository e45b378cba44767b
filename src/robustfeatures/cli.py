"""The command line: the jobs that Snakemake starts, and a few commands for people."""

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
    help="Robust and non-robust features: jobs of the workflow, and commands to look into it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Reference = Annotated[Path, typer.Argument(help="results/artifacts/<stage>/<label>-<digest>.json")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", envvar="ROBUSTFEATURES_STORE", help="The folder of payloads; by default config.yaml's."),
]
LogOption = Annotated[Path | None, typer.Option("--log", help="A file for the log; without it, the terminal.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="The configuration file.")]
StudyOption = Annotated[str | None, typer.Option("--study", help="Another study than the configured one.")]

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
        typer.Option(envvar="ROBUSTFEATURES_SHARE_GPUS", help="Use one GPU that no other job here has taken, or none."),
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
    # Unlike the default, an error lets go of what this process holds, so that nobody waits for it.
    signal.signal(signal.SIGTERM, _stop)
    terminal = log is None and sys.stderr.isatty()
    surroundings = jobs.Surroundings(_store(store), raw, device, threads, terminal, share_gpus)
    if part is None:
        jobs.build(reference, surroundings)
    else:
        jobs.build_part(reference, Share(part, parts), surroundings)


@app.command()
def view(reference: Reference, store: StoreOption = None, log: LogOption = None) -> None:
    """Write one table, figure, claims file or page of a planned study."""
    from robustfeatures.pipeline.report.building import build_view

    _log_to(log)
    build_view(reference, store=_store(store))


@app.command()
def show(reference: Reference, store: StoreOption = None) -> None:
    """Print one artifact in human terms: what it is, settings, numbers, cost, where it lies."""
    from robustfeatures.tools.show import show as lines

    _print(lines(reference, _store(store)))


@app.command()
def why(reference: Reference) -> None:
    """Print the recipes behind an artifact, and what differs from the newest earlier build of its label."""
    from robustfeatures.tools.why import why as lines

    _print(lines(reference))


@app.command()
def status(config: ConfigOption = CONFIG, study: StudyOption = None) -> None:
    """Print what a study still lacks, what is running, how far it is, and the time left."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.pipeline.store.store import Store
    from robustfeatures.tools.status import status as lines

    configured = _config(config, study)
    _print(lines(unfold(configured, STUDIES), Artifacts(ARTIFACTS), Store(Path(configured.store))))


@app.command()
def fetch(config: ConfigOption = CONFIG, study: StudyOption = None) -> None:
    """Download and check a study's raw data beforehand, for machines without internet; check files of your own."""
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
    """Rehash every file of the store and name each that is damaged; exit code 1 if a damaged one is left in place."""
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
    """Write an original or derived data set as image folder, .npz file or torch tensors, and say what is lost."""
    from robustfeatures.tools import exporting

    signal.signal(signal.SIGTERM, _stop_export)
    # Only a reference needs a store; a data.zarr may lie where there is no config.yaml.
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
    """List, or remove, the payloads that the configured study (or the named ones) does not reach, and leftovers."""
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
    # Unlike the default, an error lets the half-written export be removed.
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
    # A log that cannot be written, on a full disk, must not bury the one line that says so.
    logging.raiseExceptions = False
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    # Appended to, for a job may be tried again while its first try is still at work on another machine.
    handler = logging.FileHandler(path, encoding="utf-8") if path else logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    # On a terminal the progress bar says how far a job is.
    logging.basicConfig(level=logging.INFO if path else logging.WARNING, handlers=[handler])


class _OneLine(logging.Formatter):
    """A line for each message, so that no name in it can pass for a line of its own; tracebacks keep theirs."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return make_printable(super().formatMessage(record))


def main() -> None:
    """Run the command line; what the user can mend is one line on standard error and exit code 1."""
    try:
        code = app(standalone_mode=False) or 0
    except UserError as error:
        code = _complain(str(error))
    except OSError as error:
        where = error.filename if error.filename is not None else "disk"
        code = _complain(f"{where}: {error.strerror or error}")
    except typer.Abort as abort:
        # Typer makes one of every EOFError too, which here no key has caused, for no command asks anything.
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
    # Python takes 0.4 s to dismantle torch, in every one of a study's many short jobs.
    os._exit(code)


def _complain(message: str, code: int = 1) -> int:
    line = make_printable(" ".join(message.split()))
    if any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger().handlers):
        logging.getLogger(__name__).error("%s", line)
    print(f"robustfeatures: {line}", file=sys.stderr)
    return code
