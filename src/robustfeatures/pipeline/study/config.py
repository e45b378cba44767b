"""The configuration: which study to build, where, and how to divide its work into jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Gt

from robustfeatures.engine.settings import Strict
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.pipeline.study.validation import validate

Count = Annotated[int, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """The fields of config.yaml.

    Only `study` changes recipes. Device and threads change the last bits of a result and are recorded beside it.
    """

    study: Name
    store: str = "results/store"
    raw: str = "results/raw"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus_per_job: Literal["auto", 0, 1] = "auto"
    threads_per_job: Count = 1
    seeds_per_job: Count = 1
    rows_per_job: Count = 1
    derived_parts: Count = 1
    evaluation_parts: Count = 1
    longest_minutes: Count = 2880

    def parts(self, stage: str) -> int:
        """How many jobs share one artifact of a stage."""
        return {"derived": self.derived_parts, "evaluation": self.evaluation_parts}.get(stage, 1)


def read_config(values: Any) -> Config:
    """The configuration that Snakemake read.

    Raises:
        UserError: a field is unknown or wrong.
    """
    return validate(Config, values, "config.yaml")
