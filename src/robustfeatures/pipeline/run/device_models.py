"""The models of GPUs that make the parts of one result: each model rounds in its own way."""

from __future__ import annotations

import logging
from pathlib import Path

from robustfeatures.errors import UserError

log = logging.getLogger(__name__)


class DeviceModels:
    """The devices that made the parts of one result, by the names that `name_device` gives.

    `own` is that of this job, `may_mix` whether the parts may come from several.
    """

    def __init__(self, own: str = "cpu", *, may_mix: bool = False) -> None:
        self.own = own
        self.may_mix = may_mix
        self._found: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The devices of all parts so far; that of this job if there is no part."""
        return sorted(self._found or {self.own})

    def add(self, name: str, part: Path) -> None:
        """Count a part, which the device `name` made or will make; `part` is its file.

        Raises:
            UserError: another device made another part, and they may not mix.
        """
        others = sorted(self._found - {name})
        if others and name not in self._found:
            line = f"{part}: made on {name}, while other parts were made on {'; '.join(others)}"
            if not self.may_mix:
                raise UserError(
                    f"{line}; give all jobs the same model, set mix_gpu_models: true in config.yaml, or remove "
                    f"{part.parent}"
                )
            log.warning("%s, as mix_gpu_models allows", line)
        self._found.add(name)
