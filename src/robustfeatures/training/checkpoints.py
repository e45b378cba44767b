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
from robustfeatures.store.files import write_atomically

log = logging.getLogger(__name__)

# Seconds between two checkpoints; tests shorten it.
INTERVAL = float(os.environ.get("ROBUSTFEATURES_CHECKPOINT_SECONDS", "60"))


class Checkpoints:
    """One file that always holds a whole state: written beside it, then renamed.

    Inside `with`, a request to end (SIGTERM, as a scheduler sends it before the time is up) makes a checkpoint due, and
    the program leaves when it is saved.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoint.pt"
        self.last = time.monotonic()
        self.leaving = False

    def __enter__(self) -> Checkpoints:
        self._handler = signal.signal(signal.SIGTERM, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._handler)

    def _leave(self, *_: object) -> None:
        self.leaving = True

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

    def due(self) -> bool:
        """Whether the last time was long enough ago, or there will be no other."""
        return self.leaving or time.monotonic() - self.last >= INTERVAL

    def save(self, state: dict[str, Any]) -> None:
        """Save the state; where the disk is full, the last one stays.

        Raises:
            UserError: the program was asked to end, and does so now.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.path, buffer.getbuffer(), durable=False)
        self.last = time.monotonic()
        if self.leaving:
            raise UserError("stopped by SIGTERM with a checkpoint saved; run again, and the training goes on from it")
