"""The code that a result depends on: the modules that its entries reach, and the part of their syntax that counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from robustfeatures.pipeline.plan import identity, reach
from robustfeatures.pipeline.plan.identity import identify_science
from robustfeatures.pipeline.plan.syntax import describe_tree, strip_wording
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "src" / "robustfeatures"

STAGE = '''
"""Doc."""
import logging

import numpy as np

from robustfeatures import errors
from robustfeatures.errors import UserError
from robustfeatures.helper import g
from robustfeatures.package import exported

log = logging.getLogger(__name__)

def f(x):
    """Doc of f."""
    if x < 0:
        log.info("x is %s", x)
        raise UserError(f"{x} is below 0")
    return np.abs(g(x)) + 1
'''

FILES = {
    "__init__": "",
    "errors": "class UserError(Exception): pass\n",
    "files": "z = 1\n",
    "helper": "import sklearn.svm\n\ndef g(x):\n    return x\n",
    "other": "y = 1\n",
    "package.__init__": "from robustfeatures.package import aside\nfrom .defining import exported\n",
    "package.aside": "import scipy\n",
    "package.defining": "def exported(x):\n    return x\n",
    "package.registry": "NAMES = {'a': 'robustfeatures.other'}\n",
    "package.settings": "DEFAULT = 1\n",
    "pipeline.__init__": "",
    "pipeline.store": "keep = 1\n",
    "stage": STAGE,
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package that replaces this one."""
    folder = tmp_path / "robustfeatures"
    write(folder, FILES)
    monkeypatch.setattr(reach, "ROOT", folder)
    identity.clear_caches()
    yield folder
    identity.clear_caches()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def code() -> str:
    """The digest of the small package's stage with its current files."""
    identity.clear_caches()
    found: str = identify_science(("robustfeatures.stage:f",))["code"]
    return found


def reached(*lines: str) -> set[str]:
    """The modules, without the package's name, that a module with these lines reaches."""
    (reach.ROOT / "stage.py").write_text("\n".join(lines))
    identity.clear_caches()
    modules = reach.reach(["robustfeatures.stage"]).modules
    return {module.removeprefix("robustfeatures.") for module in modules} - {"stage"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Doc.", "Another doc."),
        ("Doc of f.", "Another doc."),
        ("is below 0", "must not be below 0"),
        ('UserError(f"{x} is below 0")', 'UserError("wrong") from None'),
        ('log.info("x is %s", x)', 'log.warning("%s", 2 * x)'),
        ('log.info("x is %s", x)', "pass"),
        ("log = logging.getLogger(__name__)", 'log = logging.getLogger("another")'),
        ("import UserError", "import UserError, suggest"),
        ("np.abs(g(x)) + 1", "(  # in brackets\n        np.abs(g(x)) + 1\n    )"),
    ],
)
def test_words_and_form_change_nothing(package: Path, old: str, new: str) -> None:
    before = code()
    assert old in STAGE
    write(package, {"stage": STAGE.replace(old, new)})
    assert code() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1", "+ 1.0"),
        ("x < 0", "x <= 0"),
        ("x < 0", "x < 0.0"),
        ("x < 0", "x < False"),
        ("x < 0", "x < None"),
        ("raise UserError", "raise ValueError"),
        ("return np", "x += 1\n    return np"),
        ('log.info("x is %s", x)', "x.info(1)"),
        ("import g", "import h as g"),
        ('"""Doc of f."""', 'y = """Doc of f."""'),
    ],
)
def test_whatever_can_change_a_number_changes_the_digest(package: Path, old: str, new: str) -> None:
    before = code()
    assert old in STAGE
    write(package, {"stage": STAGE.replace(old, new), "helper": FILES["helper"] + "def h(x):\n    return x\n"})
    other_helper = code()
    write(package, {"stage": STAGE})
    assert len({before, other_helper, code()}) == 3


@pytest.mark.parametrize("name", ["package.settings", "package.registry"])
def test_words_of_settings_count_for_views_alone(package: Path, name: str) -> None:
    """Their values are among the parameters of a recipe, but pages show titles that stand there."""

    def codes() -> tuple[str, str]:
        identity.clear_caches()
        return identify_science(("robustfeatures.stage",))["code"], identify_science(
            ("robustfeatures.stage",), of_view=True
        )["code"]

    write(package, {"stage": f"from robustfeatures.{name} import *\n"})
    before = codes()
    write(package, {name: FILES[name] + "TITLES = {'pgd': 'PGD'}\n"})
    after = codes()
    assert after[0] == before[0]
    assert after[1] != before[1]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("helper", True),
        ("package.defining", True),
        ("package.aside", False),
        ("package.__init__", False),
        ("errors", False),
        ("other", False),
        ("__init__", False),
    ],
)
def test_an_edit_of_a_module_counts_where_it_is_reached(package: Path, name: str, changes: bool) -> None:
    before = code()
    write(package, {name: FILES[name] + "\nnew = 1\n"})
    assert (code() != before) == changes


@pytest.mark.usefixtures("package")
def test_what_is_reached() -> None:
    assert reached("import robustfeatures.helper") == {"helper"}
    assert reached("def f():", "    from robustfeatures.helper import g") == {"helper"}
    assert reached("from robustfeatures import helper, other") == {"helper", "other"}
    assert reached("from robustfeatures.package import exported") == {"package.defining"}
    assert reached("from .package import exported") == {"package.defining"}
    assert reached("from robustfeatures.package import aside") == {"package.aside"}
    assert reached("import robustfeatures.package") == {"package.aside", "package.defining"}
    # A recipe chooses these by the module's name.
    assert reached("from importlib import import_module", "import_module('robustfeatures.other').y") == set()
    assert reached("from robustfeatures.package.registry import NAMES", "import_module(NAMES['a'])") == set()
    assert reached("from robustfeatures.package.settings import DEFAULT") == set()
    for outside in ("errors", "files", "pipeline.store"):
        assert reached(f"import robustfeatures.{outside}") == set()
    for_types = ("from typing import TYPE_CHECKING", "if TYPE_CHECKING:", "    from robustfeatures import other")
    assert reached(*for_types) == set()
    assert reached(*for_types, "else:", "    from robustfeatures import helper") == {"helper"}


@pytest.mark.usefixtures("package")
def test_a_name_that_no_module_defines_is_told() -> None:
    with pytest.raises(ValueError, match=r"robustfeatures\.stage: takes missing from robustfeatures\.package"):
        reached("from robustfeatures.package import missing")
    with pytest.raises(ValueError, match=r"robustfeatures\.absent is not a module"):
        reached("import robustfeatures.absent")


@pytest.mark.usefixtures("package")
def test_libraries_are_those_that_the_reached_modules_import() -> None:
    identity.clear_caches()
    assert reach.reach(["robustfeatures.stage"]).libraries == {"numpy", "sklearn"}
    reached("import os", "from robustfeatures.package import aside", "def f():", "    import_module('pandas')")
    assert reach.reach(["robustfeatures.stage"]).libraries == {"scipy", "pandas"}


def test_whatever_uses_torch_depends_on_the_settings_of_torch(package: Path) -> None:
    write(package, {"engine.__init__": "", "engine.determinism": "import torch\n"})
    assert reached("import numpy") == set()
    assert reached("import torch.nn.functional as F") == {"engine.determinism"}
    assert reached("from torch import nn") == {"engine.determinism"}


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("def f():\n    'doc'\n", "def f():\n    pass"),
        ("class A:\n    'doc'\n    x: int = 1\n    'of x'\n", "class A:\n    x: int = 1"),
        ("import logging, os\nlogging.info('x')\n", "import os"),
        ("from logging import getLogger\nlog = getLogger()\nlog.error('x')\n", "pass"),
        ("import math\nmath.log(2)\n", "import math\nmath.log(2)"),
        ("for x in y:\n    logging.info(x)\n", "for x in y:\n    pass"),
        (
            "try:\n    f()\nexcept OSError as e:\n    raise E(e) from e\n",
            "try:\n    f()\nexcept OSError as e:\n    raise E",
        ),
        ("raise\n", "raise"),
        ("if typing.TYPE_CHECKING:\n    import a\nelse:\n    import b\n", "import b"),
    ],
)
def test_the_essence_of_a_module(source: str, left: str) -> None:
    assert ast.unparse(strip_wording(ast.parse(dedent(source)))) == left


def test_the_packages_of_science_define_nothing() -> None:
    """No `__init__` is in a digest, so it may only have a docstring, imports and tables of names."""
    for path in reach.ROOT.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.If():
                    pass
                case ast.Assign(targets=[ast.Name(id="__all__" | "__version__" | "_PUBLIC")]):
                    pass
                case ast.FunctionDef(name="__getattr__" | "__dir__"):
                    pass
                case _:
                    raise AssertionError(f"{path}:{node.lineno}")


def test_no_number_comes_from_a_method_of_settings() -> None:
    """The modules of settings are outside the identity: what they compute must decide no number."""
    science = [
        path
        for folder in ("data", "models", "engine", "attacks", "derived", "training", "measurements", "theory")
        for path in (PACKAGE / folder).rglob("*.py")
    ]
    settings = [path for path in science if path.name == "settings.py"]
    methods = {
        method.name
        for path in settings
        for kind in ast.walk(ast.parse(path.read_text()))
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef) and not method.decorator_list and not method.name.startswith("__")
    }
    assert "iterate_sources" in methods
    called = {
        f"{path.relative_to(PACKAGE)}: {node.func.attr}"
        for path in science
        if path.name not in ("settings.py", "registry.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
    }
    assert called == set()


def test_a_tree_is_described_alike_by_every_python() -> None:
    """Python 3.12 and later have other fields, and write this f-string with other quotes."""
    text = describe_tree(ast.parse("def f(x):\n    return f'{x[\"a\"]!r}'"))
    subscript = "Subscript(value=Name(id='x',ctx=Load()),slice=Constant(value='a'),ctx=Load())"
    value = f"JoinedStr(values=[FormattedValue(value={subscript},conversion=114)])"
    function = f"FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),body=[Return(value={value})])"
    assert text == f"Module(body=[{function}])"
