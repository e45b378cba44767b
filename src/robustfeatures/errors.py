"""The exception for mistakes that the user can correct, and helpers for its message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: file and field, problem, remedy.

    Names in the message may come from any file, so characters that cannot be printed become escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(make_printable(message))


class StoppedError(UserError):
    """The scheduler or the user ended the program, which goes on from what is finished when it is run again."""


def make_printable(text: str) -> str:
    """The text on one line; control and invisible characters become escapes (`\\x1b`)."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def join_words(words: Sequence[str]) -> str:
    """The words as a list in text: "a, b and c"; no words are an empty text."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def count_things(count: int, noun: str) -> str:
    """The count with its noun: "1 payload", "2 payloads"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def suggest(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' with the nearest known name; if none is near, ' (known: ...)' with all known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(names)})" if names else ""
