"""The state of a training between two steps, on disk."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from robustfeatures.errors import UserError
from robustfeatures.files import write_atomically

log = logging.getLogger(__name__)

# Seconds between two checkpoints; tests shorten it.
INTERVAL = float(os.environ.get("ROBUSTFEATURES_CHECKPOINT_SECONDS", "60"))
REQUESTS = (signal.SIGTERM, signal.SIGINT)


class Checkpoints:
    """One file that always holds a whole state: written beside it, then renamed.

    Inside `with`, a request to end (SIGTERM, as a scheduler sends it before the time is up, or Ctrl-C) makes a
    checkpoint due, and the program leaves when it is saved.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoint.pt"
        self.last = time.monotonic()
        self.request: signal.Signals | None = None

    def __enter__(self) -> Checkpoints:
        self._handlers = {number: signal.signal(number, self._leave) for number in REQUESTS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _leave(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self.request is not None:
            # Twice means at once.
            raise KeyboardInterrupt
        self.request = signal.Signals(number)

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The saved state on `device`, or None where there is none or it cannot be read."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
        # Which error a damaged file raises depends on its bytes, and torch promises none.
        except Exception as error:
            log.warning("%s cannot be read and is dropped, the training begins anew: %s", self.path, error)
            return None
        return state

    def is_due(self) -> bool:
        """Return whether `INTERVAL` seconds have passed since the last checkpoint, or the program was asked to end."""
        return self.request is not None or time.monotonic() - self.last >= INTERVAL

    def save(self, state: dict[str, Any]) -> None:
        """Save the state; where the disk is full, the last one stays.

        Raises:
            UserError: the program was asked to end, and does so now.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.path, buffer.getbuffer(), durable=False)
        self.last = time.monotonic()
        if self.request is not None:
            raise UserError(
                f"stopped by {self.request.name} with a checkpoint saved; run again, and the training goes on from it"
            )
