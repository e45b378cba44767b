"""The configuration: which study to build, where, and how to divide its work into jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from annotated_types import Gt, Le
from pydantic import AfterValidator, BeforeValidator, StringConstraints

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.files import expand_home
from robustfeatures.pipeline.store.remote import check_address
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.pipeline.study.validation import validate

# What else lies in `results/` beside the folder of a study.
TAKEN = ("artifacts", "store", "raw", "logs", "benchmarks", "README.md")
# What YAML writes for a value that is no text.
WORDS = {"true": True, "false": False, "null": None}


def check_study_name(name: str) -> str:
    """The name of a study, which is also that of its folder in `results/`.

    Raises:
        ValueError: something else has this name there.
    """
    if name in TAKEN or name.startswith("compared-"):
        raise ValueError(f"results/{name} is for something else; give the study another name")
    return name


def refuse_bool(value: Any) -> Any:
    """The value, unless it is true or false, which count as 1 and 0 otherwise.

    Raises:
        ValueError: it is true or false.
    """
    if isinstance(value, bool):
        raise ValueError("should be auto, 0 or 1")
    return value


Folder = Annotated[str, StringConstraints(min_length=1)]
Parts = Annotated[int, Gt(0), Le(1000)]


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """The fields of config.yaml.

    Only `study` changes recipes. Device and threads change the last bits of a result and are recorded beside it. So is
    the fast path, which should change none.
    """

    study: Annotated[Name, AfterValidator(check_study_name)]
    """The study to build: a file of `workflow/studies/`, without `.yaml`."""
    store: Folder = "results/store"
    """The folder of payloads; several studies, people and machines may share it."""
    raw: Folder = "results/raw"
    """The folder of downloads."""
    remote: str | None = None
    """A folder, `sftp://` or `s3://` address whose payloads are fetched before anything is computed."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks run; `auto` uses a GPU if there is one."""
    gpus_per_job: Annotated[Literal["auto", 0, 1], BeforeValidator(refuse_bool)] = "auto"
    """The GPUs of each training, attack or evaluation; `auto` is 1 for jobs of at least 1e14 operations."""
    gpu_fast_path: bool = True
    """CUDA graphs and pinned memory on a GPU; they changed no bit on an H200. See `engine/fast_path.py`."""
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
    derived_parts: Parts = 1
    """How many jobs share one derived data set."""
    evaluation_parts: Parts = 1
    """How many jobs share one evaluation."""
    longest_minutes: PositiveInt = 2880
    """The longest run time, in minutes, that a job requests from a cluster."""

    def parts(self, stage: str) -> int:
        """How many jobs share one artifact of a stage."""
        return {"derived": self.derived_parts, "evaluation": self.evaluation_parts}.get(stage, 1)


def read_config(values: Any, file: str = "config.yaml", elsewhere: Mapping[str, str] | None = None) -> Config:
    """The configuration with the values of a file. `~` at the beginning of a folder is the user's home.

    `elsewhere` says for some fields what gives them in place of the file, such as "--study".

    Raises:
        UserError: a field is unknown or wrong, or the address of the remote holds credentials. The message begins with
            what gives the field.
    """
    try:
        config = validate(Config, values)
        if config.remote is not None:
            check_address(config.remote, "remote")
    except UserError as error:
        source = (elsewhere or {}).get(str(error).partition(":")[0], file)
        raise UserError(f"{source}: {error}") from error
    return replace(config, store=str(expand_home(config.store)), raw=str(expand_home(config.raw)))


def read_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `--config`, of which Snakemake leaves `true`, `false` and `null` as text."""
    return {name: WORDS.get(value, value) if isinstance(value, str) else value for name, value in values.items()}
