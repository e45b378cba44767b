"""The configuration: what to build, where, and how its work is cut into jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Gt

from robustfeatures.recipes.parameters import Name, Strict
from robustfeatures.recipes.validation import validated

Count = Annotated[int, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Parts(Strict):
    """How many jobs share the making of one derived set, and of one evaluation."""

    derived: Count = 1
    evaluation: Count = 1

    def of(self, stage: str) -> int:
        """The number of parts of an artifact of a stage; 1 for stages that are not cut."""
        return int(getattr(self, stage, 1))


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """What config.yaml may say.

    Only `study` enters the recipes. Device and threads change the last bits of a result; they are recorded beside it.
    """

    study: Name
    store: str = "results/store"
    raw: str = "results/raw"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus_per_job: Literal["auto", 0, 1] = "auto"
    threads_per_job: Count = 1
    seeds_per_job: Count = 1
    parts: Parts = field(default_factory=Parts)


def read_config(values: Any) -> Config:
    """The configuration that Snakemake read.

    Raises:
        UserError: a field is unknown or wrong.
    """
    return validated(Config, values, "config.yaml")
