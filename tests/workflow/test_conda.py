"""Every rule in an environment that holds what envs/*.yaml names and nothing else, the package itself not installed."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions, packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY, Workspace, workspace_in
from tests.workflow import conda

# One environment, 1.3 GB, for the tests of this file, which run in one process (`--dist loadfile`).

ENVIRONMENTS = ("cpu", "gpu")

# Runs at the start of every Python process of the environment, and writes at its end what it was and what it loaded.
PROBE = """
import atexit, json, os, sys

def record():
    modules = {{name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}}
    process = {{
        "arguments": sys.orig_argv, "prefix": sys.prefix, "path": sys.path,
        "variables": dict(os.environ), "modules": {{name: file for name, file in modules.items() if file}},
    }}
    with open(f"{folder}/{{os.getpid()}}-{{os.urandom(8).hex()}}.json", "w") as file:
        json.dump(process, file)

def leave(code, leave=os._exit):
    record()
    leave(code)

atexit.register(record)
os._exit = leave
"""


def dependencies(name: str) -> list[Requirement]:
    """What pip is asked to install for envs/<name>.yaml."""
    environment = yaml.safe_load((REPOSITORY / "envs" / f"{name}.yaml").read_text())
    (lines,) = (each["pip"] for each in environment["dependencies"] if isinstance(each, dict))
    return [Requirement(line) for line in lines if not line.startswith("--")]


@dataclass(frozen=True)
class Environment:
    """An environment that Snakemake made, and the processes that ran in it."""

    workspace: Workspace
    prefix: Path
    probes: Path
    main_path: Path

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.prefix.glob("lib/python*/site-packages")
        return found

    @cached_property
    def jobs(self) -> list[dict[str, Any]]:
        """The processes that ran the package, one per job."""
        processes = [json.loads(path.read_text()) for path in self.probes.iterdir()]
        return [process for process in processes if "robustfeatures" in process["arguments"]]


def small_study(workspace: Workspace) -> None:
    """Write the study `small`: the smoke study cut down to one experiment that needs every kind of rule."""
    studies = workspace.folder / "workflow" / "studies"
    study = read_yaml(studies / "smoke.yaml")
    study["experiments"] = {"A7": {}}
    (studies / "small.yaml").write_text(json.dumps(study))
    workspace.edit("config.yaml", "study: digits", "study: small")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The environment of the rules, made by `snakemake --use-conda`, and the small study built in it."""
    if (wanted := read_yaml(REPOSITORY / "envs" / "cpu.yaml")["dependencies"][0]) != conda.PYTHON:
        pytest.skip(f"envs/cpu.yaml wants {wanted}; the stand-in for conda has {conda.PYTHON}")
    root = tmp_path_factory.mktemp("conda")
    workspace = workspace_in(root / "work")
    small_study(workspace)
    elsewhere = root / "elsewhere"
    probes = root / "probes"
    elsewhere.mkdir()
    probes.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # No Python of the tests on PATH. What the user has on PYTHONPATH is for the main process alone.
        patch.setenv("PATH", f"{conda.install(root / 'conda')}:/usr/bin:/bin")
        patch.setenv("PYTHONPATH", str(elsewhere))
        workspace.snakemake("--use-conda", "--conda-create-envs-only")
        (prefix,) = (path for path in (workspace.folder / ".snakemake" / "conda").iterdir() if path.is_dir())
        made = Environment(workspace, prefix, probes, elsewhere)
        (made.packages / "sitecustomize.py").write_text(PROBE.format(folder=probes))
        workspace.snakemake("--use-conda")
    yield made
    shutil.rmtree(prefix)


def closure(requirements: list[Requirement], packages: Path) -> set[str]:
    """The names of the distributions in `packages` that `requirements` ask for, directly or through others."""
    installed = {canonicalize_name(each.name): each for each in distributions(path=[str(packages)])}
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needed = [Requirement(line) for line in installed[name].requires or []]
            waiting += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


@pytest.mark.slow
def test_the_environment_holds_what_its_file_names_and_nothing_else(environment: Environment) -> None:
    installed = {canonicalize_name(each.name): each for each in distributions(path=[str(environment.packages)])}
    requirements = dependencies("cpu")
    assert installed.keys() == closure(requirements, environment.packages) | {"pip"}
    for requirement in requirements:
        assert requirement.specifier.contains(installed[canonicalize_name(requirement.name)].version), requirement
    files = {file.parts[0] for each in installed.values() for file in each.files or []}
    there = {path.name for path in environment.packages.iterdir()}
    assert there - files - {"__pycache__"} == {"sitecustomize.py"}
    assert not {"robustfeatures", "pytest", "foolbox", "mypy"} & there


@pytest.mark.slow
def test_the_package_is_not_installed_there(environment: Environment, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import PackageNotFoundError, version\n"
        "from importlib.util import find_spec\n"
        "assert find_spec('torch') and not find_spec('robustfeatures')\n"
        "try:\n"
        "    version('robustfeatures')\n"
        "except PackageNotFoundError:\n"
        "    print('not installed')\n"
    )
    done = subprocess.run(
        [environment.python, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "not installed\n", done.stderr


@pytest.mark.slow
def test_every_job_ran_in_the_environment(environment: Environment) -> None:
    artifacts = environment.workspace.folder / "results" / "artifacts"
    references = {path.relative_to(environment.workspace.folder) for path in artifacts.glob("*/*.json")}
    stages = {reference.parent.name for reference in references}
    assert stages == {"data", "model", "derived", "evaluation", "table", "figure", "claims", "report"}
    made = Counter(Path(word) for job in environment.jobs for word in job["arguments"] if word.endswith(".json"))
    assert made == Counter(references)
    for job in environment.jobs:
        assert job["prefix"] == job["variables"]["CONDA_PREFIX"] == str(environment.prefix)
        assert job["variables"]["PYTHONNOUSERSITE"] == "1"


@pytest.mark.slow
def test_jobs_import_from_the_environment_and_the_source_tree_alone(environment: Environment) -> None:
    source = environment.workspace.folder / "src"
    library = Path(json.__file__).parents[1]
    third_party = set()
    for job in environment.jobs:
        assert str(environment.main_path) not in job["path"]
        loaded = {name: Path(file) for name, file in job["modules"].items() if "." not in name}
        assert loaded["robustfeatures"].is_relative_to(source)
        for name, file in loaded.items():
            if file.is_relative_to(environment.packages):
                third_party.add(name)
            elif not file.is_relative_to(source):
                assert "site-packages" not in file.relative_to(library).parts, file
    assert {"torch", "zarr", "pandas", "matplotlib", "jinja2"} <= third_party


@pytest.mark.slow
def test_every_module_can_be_imported_there(environment: Environment, tmp_path: Path) -> None:
    source = environment.workspace.folder / "src"
    modules = [
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in source.rglob("*.py")
        if path.name != "__main__.py"
    ]
    assert len(modules) > 50
    code = (
        "import sys\n"
        "from importlib import import_module\n"
        "for module in sys.argv[1:]:\n"
        "    import_module(module)\n"
        "from robustfeatures.engine.vision import import_torchvision\n"
        "import_torchvision().datasets, import_torchvision().models\n"
    )
    done = subprocess.run(
        [environment.python, "-c", code, *modules],
        cwd=tmp_path,
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def imported_names(tree: ast.AST) -> Iterator[str]:
    """The top-level names that a module imports anywhere in its text."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module.partition(".")[0]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_the_package_imports_is_named(name: str) -> None:
    named = {canonicalize_name(requirement.name) for requirement in dependencies(name)}
    providers = packages_distributions()
    found: set[str] = set()
    for path in (REPOSITORY / "src").rglob("*.py"):
        # Extras, which an environment need not have.
        outside = sys.stdlib_module_names | {"robustfeatures", "timm", "s3fs", "sshfs", "pyarrow"}
        for module in set(imported_names(ast.parse(path.read_text()))) - outside:
            provided = {canonicalize_name(provider) for provider in providers.get(module, [])}
            assert provided & named, f"{path} imports {module}, which envs/{name}.yaml does not name"
            found |= provided
    assert {"torch", "torchvision", "pillow", "pyyaml", "scikit-learn"} <= found


@pytest.mark.parametrize(("device", "name"), [("auto", "cpu"), ("cuda", "gpu")])
def test_the_device_chooses_the_environment(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, name: str
) -> None:
    monkeypatch.setenv("PATH", f"{conda.install(tmp_path / 'conda')}:/usr/bin:/bin")
    # A GPU by name, because a plan refuses `device: cuda` without any.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    done = workspace.snakemake("--use-conda", "--dry-run", "--config", f"device={device}")
    planned = re.findall(r"Conda environment \S*envs/(\w+)\.yaml will be created", done.stdout + done.stderr)
    assert planned == [name]


def test_without_conda_jobs_keep_the_pythonpath(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = workspace.folder / "it's elsewhere"
    elsewhere.mkdir()
    probes = workspace.folder / "probes"
    probes.mkdir()
    (elsewhere / "sitecustomize.py").write_text(PROBE.format(folder=probes))
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    workspace.snakemake("--dry-run")
    (plan,) = (workspace.folder / "results" / "artifacts" / ".plan" / "data").iterdir()
    workspace.snakemake(f"results/artifacts/data/{plan.name}")
    environment = Environment(workspace, Path(sys.prefix), probes, elsewhere)
    (job,) = environment.jobs
    source = workspace.folder / "src"
    assert [job["path"].index(str(folder)) for folder in (source, elsewhere)] == [1, 2]
