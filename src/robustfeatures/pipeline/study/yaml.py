"""Read YAML safely: 5e-4 and 8/255 are numbers; a name that appears twice, or 010 for 8, is an error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from robustfeatures.errors import UserError
from robustfeatures.files import is_text


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's floats, and with fractions."""

    def construct_fraction(self, node: yaml.ScalarNode) -> float:
        """The float nearest to the fraction of two integers that a plain scalar such as 8/255 states."""
        over, under = map(int, node.value.split("/"))
        if under == 0:
            raise yaml.MarkedYAMLError(problem=f"{node.value} divides by zero", problem_mark=node.start_mark)
        try:
            return over / under
        except OverflowError as error:
            raise yaml.MarkedYAMLError(problem=f"{TOO_LARGE} here", problem_mark=node.start_mark) from error


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
# Radii are often fractions of 255.
_Loader.add_implicit_resolver("!fraction", re.compile(r"^\d+/\d+$"), list("0123456789"))
_Loader.add_constructor("!fraction", _Loader.construct_fraction)


# Names that YAML reads as something else: `yes` as true, 010 as 8.
NO_TEXT = re.compile("tag:yaml.org,2002:(bool|timestamp)")
PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
# Integers that YAML reads in base 2, 8 or 16, and numbers that it reads in base 60: 010 as 8, 1:30 as 90.
OTHER_INTEGER = re.compile(r"[-+]?0[\d_bx].*|.*:.*", flags=re.IGNORECASE)
OTHER_FLOAT = re.compile(".*:.*")

# No count of images, epochs or steps is larger, and the estimates of a plan are floats.
MOST_DIGITS = 18
TOO_LARGE = f"an integer of more than {MOST_DIGITS} digits"

# Far more values than any study has. With aliases of aliases ten lines can stand for billions.
MOST_VALUES = 1_000_000


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        UserError: the file is missing, unreadable, or no YAML.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_values(node, {}, "") > MOST_VALUES:
            raise UserError(f"{path}: more than {MOST_VALUES} values, counting each alias as what it stands for")
        return loader.construct_document(node)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}: line {line}: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        raise UserError(f"{path}: character {error.position}: {error.reason}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply") from error
    except (KeyError, AttributeError, IndexError) as error:
        # PyYAML does not expect such a text after a tag.
        raise UserError(f"{path}: a value is not of the kind that its tag (!!) names") from error
    except ValueError as error:
        # An impossible date.
        raise UserError(f"{path}: {error}") from error


def _check_names(node: yaml.MappingNode) -> None:
    """Check that no name appears twice, and that each is text or a number as it is written."""
    seen = set()
    for key, _ in node.value:
        # The loader refuses lists and mappings as names.
        if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in seen:
            raise yaml.MarkedYAMLError(problem=f"{key.value!r} appears twice", problem_mark=key.start_mark)
        is_number = key.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "!fraction")
        if NO_TEXT.fullmatch(key.tag) or (is_number and not PLAIN_NUMBER.fullmatch(key.value)):
            raise yaml.MarkedYAMLError(
                problem=f"YAML reads the name {key.value} as another value; write '{key.value}'",
                problem_mark=key.start_mark,
            )
        seen.add(key.value)


def _check_scalar(node: yaml.Node, where: str) -> None:
    """Check that a number is the one that it seems to be and not too large, and a text is one; `where` is its field."""
    kind, field = node.tag.removeprefix("tag:yaml.org,2002:"), f"{where}: " if where else ""
    pattern = {"int": OTHER_INTEGER, "float": OTHER_FLOAT}.get(kind)
    if kind == "int" and sum(map(str.isdigit, node.value)) > MOST_DIGITS:
        raise yaml.MarkedYAMLError(problem=f"{field}{TOO_LARGE}", problem_mark=node.start_mark)
    if not is_text(node.value):
        raise yaml.MarkedYAMLError(problem=f"{field}a text that is not UTF-8", problem_mark=node.start_mark)
    if pattern is not None and pattern.fullmatch(node.value):
        try:
            read = yaml.safe_load(node.value)
            problem = f"YAML reads {node.value} as {read}; write {read}, or '{node.value}' if it is text"
        except ValueError:
            problem = f"{node.value} is no number; write '{node.value}' if it is text"
        raise yaml.MarkedYAMLError(problem=f"{field}{problem}", problem_mark=node.start_mark)


def _count_values(node: yaml.Node, known: dict[yaml.Node, int | None], where: str) -> int:
    """The number of values that the node in the field `where` stands for, with each alias counted as its target."""
    if node not in known:
        known[node] = None
        children: list[tuple[str, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            _check_names(node)
            children = [(str(key.value), each) for key, value in node.value for each in (key, value)]
        elif isinstance(node, yaml.SequenceNode):
            children = [(str(number), each) for number, each in enumerate(node.value)]
        else:
            _check_scalar(node, where)
        below = ((f"{where}.{name}" if where else name, child) for name, child in children)
        known[node] = 1 + sum(_count_values(child, known, place) for place, child in below)
    found = known[node]
    if found is None:
        raise yaml.MarkedYAMLError(problem="the value holds itself", problem_mark=node.start_mark)
    return found
