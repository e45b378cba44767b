"""Run the command line."""

from __future__ import annotations

import logging
import os
import sys

import typer

from robustfeatures.cli.app import app, log_to
from robustfeatures.errors import UserError, make_printable


def main() -> None:
    """Run the command line. An error that the user can fix is one line on standard error, with exit code 1."""
    log_to(None)
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
            _log_bug(abort.__cause__)
            raise abort.__cause__ from None
        code = 130
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # click's usage errors
            code = _complain(error.format_message(), error.exit_code)
        else:
            _log_bug(error)
            raise
    for stream in (sys.stdout, sys.stderr):
        # None where the caller has closed it.
        if stream is not None:
            stream.flush()
    logging.shutdown()
    # This skips Python's teardown of torch, which takes 0.4 s in each of a study's many short jobs.
    os._exit(code)


def _log_bug(error: BaseException) -> None:
    # Python prints it on the terminal.
    if _logs_to_file():
        logging.getLogger(__name__).error("unexpected error", exc_info=error)


def _complain(message: str, code: int = 1) -> int:
    line = make_printable(" ".join(message.split()))
    if _logs_to_file():
        logging.getLogger(__name__).error("%s", line)
    # Without arguments Typer prints the help, and raises an error without a message.
    if line:
        print(f"robustfeatures: {line}", file=sys.stderr)
    return code


def _logs_to_file() -> bool:
    return any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger().handlers)
