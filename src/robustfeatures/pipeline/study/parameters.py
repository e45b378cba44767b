"""The parameters of each stage. A result depends on every one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, StringConstraints

from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data
from robustfeatures.derived.settings import Derived
from robustfeatures.engine.settings import Strict
from robustfeatures.models.settings import Pretrained
from robustfeatures.training.settings import Model

# Names are parts of file names and of commands.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]

T = TypeVar("T", bound=Sequence[Any])


def _check_distinct(values: T) -> T:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value!r} appears twice")
    return values


# A list without repeated values. A value that appears twice would count like two seeds.
Distinct = AfterValidator(_check_distinct)


@dataclass(frozen=True, kw_only=True)
class Measurement(Strict):
    """A module of this package and the settings for its function `measure`, which returns rows."""

    module: Annotated[str, StringConstraints(pattern=r"^(measurements|theory)\.[a-z][a-z0-9_]*$")]
    settings: Mapping[str, Any]


Parameters = Data | Model | Pretrained | Derived | Evaluation | Measurement
