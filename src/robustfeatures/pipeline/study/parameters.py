"""The parameters of each stage: what a result depends on, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import StringConstraints

from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.settings import Data
from robustfeatures.derived.settings import Derived
from robustfeatures.engine.settings import Strict
from robustfeatures.training.settings import Model

# Names become parts of file names and of commands.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]


@dataclass(frozen=True, kw_only=True)
class Measurement(Strict):
    """The rows that the function `measure` of a module of this package gives for its inputs and these settings."""

    module: Annotated[str, StringConstraints(pattern=r"^(measurements|theory)\.[a-z][a-z0-9_]*$")]
    settings: Mapping[str, Any]


Parameters = Data | Model | Derived | Evaluation | Measurement
