"""The smoke study with results that were written and not computed, so that tests know every number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from robustfeatures.files import hash_file, write_json
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.store.references import Artifacts, write_reference
from robustfeatures.pipeline.store.sealed import MANIFEST, write_sealed
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"


@dataclass
class Made:
    """The plan of the smoke study, and the folders of its references and payloads."""

    folder: Path
    plan: Plan = field(default_factory=lambda: unfold(Config(study="smoke"), STUDIES))

    def __post_init__(self) -> None:
        self.artifacts = Artifacts(self.folder / "results" / "artifacts")
        self.store = Store(self.folder / "store")

    def name(self, start: str) -> str:
        """The artifact whose name begins so."""
        (name,) = [name for name in self.plan.recipes if name.startswith(start)]
        return name

    def make(
        self,
        recipe: Recipe,
        seconds: float = 10.0,
        files: Mapping[str, str] | None = None,
        *,
        computing: float | None = None,
        device: str = "cpu",
    ) -> None:
        """Publish a payload with these files, and write its reference; half of the seconds are `computing`."""
        payload = self.store.payload(recipe.digest)
        sizes = {}
        for name, text in (files or {}).items():
            (payload / name).parent.mkdir(parents=True, exist_ok=True)
            (payload / name).write_text(text)
            sizes[name] = {"size": len(text.encode()), "sha256": hash_file(payload / name)}
        payload.mkdir(parents=True, exist_ok=True)
        manifest = {
            "key": recipe.digest,
            "content": "c",
            "identity": {"stage": recipe.stage.name},
            "inputs": {},
            "built": {
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": seconds,
                "computing_seconds": seconds / 2 if computing is None else computing,
                "threads": 1,
                "device": device,
                "host": "here",
                "machine": "x",
                "python": "3",
                "packages": {},
                "git_commit": None,
            },
            "files": sizes,
        }
        write_reference(
            self.artifacts.reference(recipe.name), recipe.record(), write_sealed(payload / MANIFEST, manifest)
        )
        self.artifacts.count_arrival(recipe.digest, "computed")

    def make_views(self, *kinds: str) -> None:
        """Write the references and the files of views; a file of claims has two sentences and a control."""
        for view in self.plan.views:
            if view.kind not in kinds:
                continue
            files = {}
            for output in view.outputs:
                path = self.artifacts.root.parent / output
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(CLAIMS)
                files[output] = {"sha256": hash_file(path)}
            write_json(self.artifacts.reference(view.artifact), {"files": files, "contents": {}})


CLAIMS = """experiment,claim,setting,control,verdict,source
A1,one,a,False,held,here
A1,one,b,False,held,here
A1,two,,False,undecided,here
A1,three,,True,held,here
"""
