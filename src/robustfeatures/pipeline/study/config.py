"""The configuration: which study to build, where, and how to divide its work into jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.pipeline.store.remote import check_address
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.pipeline.study.validation import validate


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """The fields of config.yaml.

    Only `study` changes recipes. Device and threads change the last bits of a result and are recorded beside it. So is
    the fast path, which should change none.
    """

    study: Name
    """The study to build: a file of `workflow/studies/`, without `.yaml`."""
    store: str = "results/store"
    """The folder of payloads; several studies, people and machines may share it."""
    raw: str = "results/raw"
    """The folder of downloads."""
    remote: str | None = None
    """A folder, `sftp://` or `s3://` address whose payloads are fetched before anything is computed."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks run; `auto` uses a GPU if there is one."""
    gpus_per_job: Literal["auto", 0, 1] = "auto"
    """The GPUs of each training, attack or evaluation; `auto` is 1 for jobs of at least 1e14 operations."""
    gpu_fast_path: bool = False
    """CUDA graphs and pinned memory on a GPU, which no GPU has run yet; see `engine/fast_path.py`."""
    jobs_per_gpu: PositiveInt = 1
    """How many jobs of one machine share a GPU."""
    mix_gpu_models: bool = False
    """Whether the parts of one result may come from several models of GPUs."""
    threads_per_job: PositiveInt = 1
    """The threads of each training, attack or evaluation."""
    seeds_per_job: PositiveInt = 1
    """How many runs that differ only in the seed share a job."""
    rows_per_job: PositiveInt = 1
    """How many rows of the same experiments share a job."""
    derived_parts: PositiveInt = 1
    """How many jobs share one derived data set."""
    evaluation_parts: PositiveInt = 1
    """How many jobs share one evaluation."""
    longest_minutes: PositiveInt = 2880
    """The longest run time, in minutes, that a job requests from a cluster."""

    def parts(self, stage: str) -> int:
        """How many jobs share one artifact of a stage."""
        return {"derived": self.derived_parts, "evaluation": self.evaluation_parts}.get(stage, 1)


def read_config(values: Any) -> Config:
    """The configuration that Snakemake read.

    Raises:
        UserError: a field is unknown or wrong, or the address of the remote holds credentials.
    """
    config = validate(Config, values, "config.yaml: ")
    if config.remote is not None:
        check_address(config.remote, "config.yaml: remote")
    return config
