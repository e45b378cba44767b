"""Input that does visible harm where a program trusts it."""

from __future__ import annotations

import os
import pickle
import shlex
from pathlib import Path

# Class names and titles. Each contains commands for a shell, a browser, a terminal, LaTeX or a template.
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a | b `c` [d](javascript:e) **f** ![g](h) &lt;",
    "# heading ~~struck~~ <!-- hidden",
    r"\input{secret} $\frac{1}{0}$ $x^",
    "\x1b]0;owned\x07\x1b[2Jgone",
    "right to left \u202e and a bell \x07",
    "$(touch touched)",
    "; touch touched #",
    "`touch touched` && touch touched | touch touched",
    "it's {output} {{threads}} %s %(x)s ${HOME}",
    "n" * 190,
)


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {shlex.quote(str(self.marker))}",)


def pickled(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker), protocol=2)


def assert_harmless(text: str) -> None:
    """The text has only printable characters and line ends."""
    assert all(one.isprintable() or one == "\n" for one in text), repr(text)


def assert_one_line(text: str) -> None:
    """The message is one line of printable characters."""
    assert text.strip()
    assert len(text.strip().splitlines()) == 1, text
    assert_harmless(text.strip())
