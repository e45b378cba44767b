"""Rules for imports: science imports nothing from the pipeline, and no imports form a circle."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.conftest import REPOSITORY

LINTER = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"


def linted(tree: Path) -> subprocess.CompletedProcess[str]:
    """The result of import-linter for the package and the contracts in a tree."""
    return subprocess.run(
        [sys.executable, "-c", LINTER],
        cwd=tree,
        env={"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_science_imports_nothing_of_the_pipeline() -> None:
    done = linted(REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_import_of_the_pipeline_is_found_wherever_it_stands(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    theory = tmp_path / "src" / "robustfeatures" / "theory"
    added = {
        "at_the_top": "from robustfeatures.pipeline.run.job import Job",
        "in_a_function": "def f():\n    from robustfeatures.tools.opening import open_dataset",
        "for_types": "from typing import TYPE_CHECKING\n\n"
        "if TYPE_CHECKING:\n    from robustfeatures.experiments import catalogue",
    }
    for name, text in added.items():
        (theory / f"{name}.py").write_text(f"{text}\n")
    done = linted(tmp_path)
    assert done.returncode == 1
    for name in added:
        assert f"robustfeatures.theory.{name} -> robustfeatures." in done.stdout


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Each set of modules that import one another, directly or indirectly."""
    found = {
        frozenset({module, *(graph.find_downstream_modules(module) & graph.find_upstream_modules(module))})
        for module in graph.modules
    }
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def test_no_file_imports_in_a_circle() -> None:
    """Imports inside functions and imports for type checkers count too."""
    assert circles(grimp.build_graph("robustfeatures", cache_dir=None)) == []


def test_a_circle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from circular import b\n")
    (package / "b.py").write_text("def f():\n    from circular import c\n")
    (package / "c.py").write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from circular.a import x\n"
    )
    (package / "d.py").write_text("from circular import a\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert circles(grimp.build_graph("circular", cache_dir=None)) == [["circular.a", "circular.b", "circular.c"]]
