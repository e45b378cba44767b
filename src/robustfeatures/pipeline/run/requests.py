"""Requests to end a program: Ctrl-C, or SIGTERM, which a scheduler sends before the time is up."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REQUESTS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handle_requests(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Inside, `handler` gets the number of each request, and the frame that it came in."""
    before = {number: signal.signal(number, handler) for number in REQUESTS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
