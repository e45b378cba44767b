"""The one exception whose message is meant for the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend; the message is one line: where (file and field), what, and what to do.

    Names in it may come from any file, so what is not `printable` is written as escapes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(make_printable(message))


def make_printable(text: str) -> str:
    """`text` on one line, with the characters that a terminal would obey or not show written as escapes (`\\x1b`)."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def suggest(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' with the nearest known name, or the list of known names where none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(names)})" if names else ""
