"""A built study, and a copy of the package whose code a test may edit, for `robustfeatures accept`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from robustfeatures.pipeline.plan import identity, reach
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import make_tasks
from robustfeatures.pipeline.store.acceptances import FOLDER
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.accept import accept

CONFIG = Config(study="tested", device="cpu")


@dataclass(frozen=True)
class Workplace:
    """A built study, and the copy of the package that its identities are taken from."""

    folder: Path
    code: Path

    @property
    def store(self) -> Store:
        return Store(self.folder / "results" / "store")

    @property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.folder / "results" / "artifacts")

    def plan(self) -> Plan:
        """The plan with the code as it is now, ready for Snakemake."""
        identity.clear_caches()
        plan = unfold(CONFIG, self.folder / "studies")
        prepare(plan, make_tasks(plan, CONFIG, gpus=0), self.artifacts, self.store)
        return plan

    def lacking(self, plan: Plan) -> list[str]:
        """What would be computed."""
        return [name for name in plan.recipes if not self.artifacts.reference(name).exists()]

    def refactor(self, name: str, text: str = "\n\ndef _added():\n    return 1\n") -> None:
        """Other code with the same numbers."""
        path = self.code / name
        path.write_text(path.read_text() + text)

    def accept(self, check: int | None = 1) -> list[str]:
        lines = accept(self.plan(), "tested", self.store, self.folder / "raw", check=check, reason="a new helper")
        return list(lines)

    def records(self) -> list[Path]:
        return sorted((self.store.root / FOLDER).glob("*"))


@contextmanager
def workplace_of(built: Path, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    """A copy of a built study, whose identities are taken from a copy of the package."""
    shutil.copytree(built, folder / "work")
    code = folder / "robustfeatures"
    shutil.copytree(reach.ROOT, code, ignore=shutil.ignore_patterns("__pycache__"))
    patch.setattr(reach, "ROOT", code)
    yield Workplace(folder / "work", code)
    identity.clear_caches()
