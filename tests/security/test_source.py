"""No module of the package calls a function that runs code from a file or a text; checked in the syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.reach import ROOT

FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "joblib.load",
    "dill.load",
    "dill.loads",
    "pandas.read_pickle",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "shutil.unpack_archive",
    "torch.hub.load",
    "jinja2.Template",
    "markupsafe.Markup",
}
# Of any object, since what `tarfile.open(...)` returns has no name of its own.
FORBIDDEN_METHODS = {"extractall", "extract", "unpack_archive", "read_pickle"}
# A call, and what one of its arguments must be.
REQUIRED = {"torch.load": ("weights_only", True)}
REFUSED = {"numpy.load": ("allow_pickle", True), "numpy.lib.npyio.NpzFile": ("allow_pickle", True)}


def imported(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for, wherever in the module it is imported."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name.partition(".")[0]
                names[one.asname or top] = one.name if one.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return "?"


def problems(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    names = imported(tree)
    restricted = {
        id(base)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if any(isinstance(one, ast.FunctionDef) and one.name == "find_class" for one in node.body)
    }
    # An argument or a field called `compile` is not the builtin; but a call of that name is refused.
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        # Named in any way, not only called: a function may be passed on.
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in restricted:
            name = dotted(node, names)
            if name in FORBIDDEN and not (name == "compile" and name in own and id(node) not in called):
                yield f"{node.lineno}: {name}"
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func, names)
        arguments = {one.arg: one.value.value if isinstance(one.value, ast.Constant) else ... for one in node.keywords}
        if isinstance(node.func, ast.Attribute) and node.func.attr in FORBIDDEN_METHODS:
            yield f"{node.lineno}: .{node.func.attr}()"
        if name.startswith("subprocess.") and arguments.get("shell", False) is not False:
            yield f"{node.lineno}: {name} with a shell"
        if name == "yaml.load":
            yield f"{node.lineno}: yaml.load"
        if name in REQUIRED and arguments.get(REQUIRED[name][0]) is not REQUIRED[name][1]:
            yield f"{node.lineno}: {name} without {REQUIRED[name][0]}"
        if name in REFUSED and arguments.get(REFUSED[name][0], False) is not False:
            yield f"{node.lineno}: {name} with {REFUSED[name][0]}"
        if None in arguments and (name in REQUIRED or name in REFUSED or name.startswith("subprocess.")):
            yield f"{node.lineno}: {name} with arguments that cannot be seen"
        if name.endswith("Environment") and name.startswith("jinja2") and not arguments.get("autoescape"):
            yield f"{node.lineno}: {name} without autoescape"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_package(path: Path) -> None:
    assert list(problems(path.read_text())) == []


def test_the_only_loader_of_yaml_is_a_safe_one() -> None:
    import yaml

    from robustfeatures.pipeline.study.yaml import _Loader

    assert issubclass(_Loader, yaml.SafeLoader)
    users = [path for path in ROOT.rglob("*.py") if "yaml" in imported(ast.parse(path.read_text())).values()]
    # The card of a data set only writes YAML. The others only find where values stand.
    others = [ROOT / "tools" / name for name in ("dataset_card.py", "lengths.py", "new_study.py")]
    assert sorted(users) == [ROOT / "pipeline" / "study" / "yaml.py", *others]
    for path in others:
        assert "yaml.load" not in path.read_text()


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.load(file)",
        "from pickle import loads as read\nread(data)",
        "import pickle as p\nlist(map(p.loads, data))",
        "import pickle\npickle.Unpickler(file).load()",
        "import pickle\nclass Mine(pickle.Unpickler):\n    pass",
        "import torch\ntorch.load(path)",
        "from torch import load\nload(path, weights_only=False)",
        "import torch\ntorch.load(path, weights_only=chosen)",
        "import torch\ntorch.load(path, **options)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "def inside():\n    from numpy import load\n    load(path, allow_pickle=chosen)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import yaml\nyaml.unsafe_load(text)",
        "eval(text)",
        "run = exec\nrun(text)",
        "def f(compile):\n    return compile(text, name, mode)",
        "code = compile(text, name, mode)",
        "def f(eval):\n    return eval",
        "import subprocess\nsubprocess.run(command, shell=True)",
        "from subprocess import Popen\nPopen(command, shell=chosen)",
        "import os\nos.system(command)",
        "import tarfile\ntarfile.open(path).extractall(folder)",
        "import zipfile\nwith zipfile.ZipFile(path) as archive:\n    archive.extract(name)",
        "import shutil\nshutil.unpack_archive(path)",
        "from jinja2 import Environment\nEnvironment()",
        "from markupsafe import Markup\nMarkup(text)",
    ],
)
def test_what_is_found(source: str) -> None:
    assert len(list(problems(source))) >= 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "network.eval()",
        "def f(compile):\n    return 1 if compile else 2",
        "import re\nre.compile(pattern)",
        "import json\njson.load(file)",
        "import subprocess\nsubprocess.run(['git'], check=False)",
    ],
)
def test_what_is_let_be(source: str) -> None:
    assert list(problems(source)) == []
