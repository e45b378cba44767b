"""Checkpoints of a training on disk."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from robustfeatures.errors import StoppedError, make_printable
from robustfeatures.files import sync_to_disk, write_atomically
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.run.requests import handle_requests

log = logging.getLogger(__name__)

# Seconds between two checkpoints; tests shorten it.
INTERVAL = float(os.environ.get("ROBUSTFEATURES_CHECKPOINT_SECONDS", "60"))
DIGEST_BYTES = hashlib.sha256().digest_size


class Checkpoints:
    """The last two complete states, each in a file that begins with the SHA-256 of the rest.

    A state names the devices that computed it, and the seconds that it took. `models` are those of this job and of the
    state that it goes on from; `seconds_before` are the seconds of that state.
    Inside `with`, a request to end makes a checkpoint due, and the program ends when it is saved. The request is
    Ctrl-C or SIGTERM, which a scheduler sends before the time is up.
    """

    def __init__(self, folder: Path, models: DeviceModels | None = None) -> None:
        self.models = models or DeviceModels()
        self.path = folder / "checkpoint.pt"
        self.before = folder / "checkpoint-before.pt"
        self.began = self.last = time.monotonic()
        self.seconds_before = 0.0
        self.request: signal.Signals | None = None
        self._handling = ExitStack()

    def __enter__(self) -> Checkpoints:
        self._handling.enter_context(handle_requests(self._leave))
        return self

    def __exit__(self, *_: object) -> None:
        self._handling.close()

    def _leave(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self.request is not None:
            # A second Ctrl-C ends the program at once.
            raise KeyboardInterrupt
        self.request = signal.Signals(number)

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The last saved state on `device`; the one before if the last one is damaged; None if there is none.

        If all are damaged, the training begins anew.

        Raises:
            OSError: a state is there but cannot be read.
            UserError: another model of GPU computed the state.
        """
        damaged = []
        for path in (self.path, self.before):
            try:
                state = _read(path, device)
            except FileNotFoundError:
                continue
            except (ValueError, pickle.UnpicklingError):
                log.error("%s: damaged", path)
                damaged.append(path)
                continue
            for name in [*state.pop("devices"), self.models.own]:
                self.models.add(name, path)
            # Checkpoints of earlier versions have no seconds.
            self.seconds_before = state.pop("seconds", 0.0)
            return state
        if damaged:
            line = f"{', '.join(map(str, damaged))}: damaged, with no other checkpoint; the training begins anew"
            log.error("%s", line)
            print(f"robustfeatures: {make_printable(line)}", file=sys.stderr, flush=True)
        return None

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough, or the program was asked to end."""
        return self.request is not None or time.monotonic() - self.last >= INTERVAL

    def save(self, state: dict[str, Any]) -> None:
        """Save the state and keep the one before. If the disk is full, both older states stay.

        Raises:
            StoppedError: the program was asked to end; the state is saved.
        """
        buffer = io.BytesIO(bytes(DIGEST_BYTES))
        buffer.seek(DIGEST_BYTES)
        seconds = self.seconds_before + time.monotonic() - self.began
        torch.save({**state, "devices": self.models.names, "seconds": seconds}, buffer)
        content = buffer.getbuffer()
        content[:DIGEST_BYTES] = hashlib.sha256(content[DIGEST_BYTES:]).digest()
        fresh = self.path.with_name("checkpoint-fresh.pt")
        write_atomically(fresh, content)
        with suppress(FileNotFoundError):
            self.path.replace(self.before)
        fresh.replace(self.path)
        sync_to_disk(self.path.parent)
        self.last = time.monotonic()
        if self.request is not None:
            raise StoppedError(
                f"stopped by {self.request.name} with a checkpoint saved; run again, and the training goes on from it"
            )


def _read(path: Path, device: torch.device) -> dict[str, Any]:
    """A saved state. It is checked before any of it goes to the device, whose errors say nothing about the file.

    Raises:
        OSError: it cannot be read.
        ValueError, pickle.UnpicklingError: it is damaged.
    """
    content = path.read_bytes()
    if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
        raise ValueError(f"{path}: its digest is that of other bytes")
    state: dict[str, Any] = torch.load(io.BytesIO(content[DIGEST_BYTES:]), map_location=device, weights_only=True)
    return state
