# The plan: the study of config.yaml, unfolded into recipes. Their digests are in the names of the files that the rules
# make. Only the main process unfolds the study. A job that a scheduler starts reads the task that was written for it.
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The package runs from the source tree, so that it need not be installed.
SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))

from robustfeatures.pipeline.run import gpus
from robustfeatures.errors import UserError, make_printable
from robustfeatures.pipeline.study.config import read_config
from robustfeatures.pipeline.plan.tasks import read_task
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.pipeline.store.references import Artifacts

ARTIFACTS = Artifacts(Path("results/artifacts"))
BEGAN = time.monotonic()
STARTED = datetime.now(UTC).isoformat(timespec="seconds")

try:
    # Snakemake's `configfile` would evaluate expressions in the file. `config` holds the values of `--config`.
    values = read_yaml(Path("config.yaml"))
    CONFIG = read_config({**values, **config} if isinstance(values, dict) else values)
    TASKS, VIEWS = {}, ()
    # The executor is not known yet. Executors that submit jobs elsewhere count them as nodes (`--jobs`).
    LOCAL = workflow.resource_settings.nodes is None
    if workflow.is_main_process:
        from robustfeatures.pipeline.plan.plan import unfold
        from robustfeatures.pipeline.plan.prepare import prepare
        from robustfeatures.pipeline.plan.tasks import make_tasks
        from robustfeatures.pipeline.store.store import Store

        GPUS = gpus.visible_gpus() if CONFIG.device != "cpu" else []
        if CONFIG.gpus_per_job == "auto":
            gpus_per_job = int(CONFIG.device == "cuda" or bool(GPUS))
        else:
            gpus_per_job = CONFIG.gpus_per_job
        PLAN = unfold(CONFIG, Path(workflow.basedir) / "workflow" / "studies")
        planned = make_tasks(PLAN, CONFIG, gpus_per_job)
        prepare(PLAN, planned, ARTIFACTS, Store(Path(CONFIG.store)))
        TASKS, VIEWS = {task.name: task for task in planned}, PLAN.views
        if gpus_per_job and LOCAL and "gpu" not in workflow.global_resources:
            # At most one job per GPU runs at once.
            workflow.register_resource("gpu", max(1, len(GPUS)))
except UserError as error:
    raise WorkflowError(str(error))
except OSError as error:
    where = "disk" if error.filename is None else error.filename
    raise WorkflowError(make_printable(f"{where}: {error.strerror or error}"))

# The environment of every job. No recipe depends on it, so it is not in the rules, where a change would be a reason for
# Snakemake to run them again.
ENVIRONMENT = {
    "ROBUSTFEATURES_STORE": CONFIG.store,
    "ROBUSTFEATURES_RAW": CONFIG.raw,
    "ROBUSTFEATURES_DEVICE": CONFIG.device,
    # A scheduler gives each job its own GPUs. Jobs of one machine have to agree on theirs.
    "ROBUSTFEATURES_SHARE_GPUS": str(
        int(workflow.is_main_process and CONFIG.device != "cpu")
    ),
}
exports = " ".join(
    f"{name}={shlex.quote(value)}" for name, value in ENVIRONMENT.items()
)
# With --use-conda Snakemake clears the user's PYTHONPATH for each job, so the job's shell reads it.
pythonpath = shlex.quote(str(SOURCE)) + '"${PYTHONPATH:+:$PYTHONPATH}"'
escaped = f"PYTHONPATH={pythonpath} {exports}".replace("{", "{{").replace("}", "}}")
shell.prefix(f"export {escaped}; ")


TASK_OF = {artifact: name for name in TASKS for artifact in TASKS[name].artifacts}


def task(name):
    """The task that makes `<stage>/<label>-<digest>`."""
    if name in TASKS:
        return TASKS[name]
    if name in TASK_OF:
        raise WorkflowError(
            f"{ARTIFACTS.reference(name)}: made together with others; ask for "
            f"{ARTIFACTS.reference(TASK_OF[name])}, or set seeds_per_job: 1 and rows_per_job: 1"
        )
    try:
        return read_task(ARTIFACTS, name)
    except UserError as error:
        raise WorkflowError(str(error))


def references(artifacts):
    """The files that Snakemake tracks for artifacts: for each, the file of the job that makes it."""
    return [
        str(ARTIFACTS.reference(TASK_OF.get(artifact, artifact)))
        for artifact in artifacts
    ]


def inputs(stage):
    """The input function of a stage's rule: the references of the job's inputs."""
    return lambda wildcards: references(task(f"{stage}/{wildcards.name}").inputs)


def finished_parts(stage):
    """The input function of a stage that several jobs may share: the files of the finished parts."""

    def parts(wildcards):
        name = f"{stage}/{wildcards.name}"
        return [str(path) for path in ARTIFACTS.parts(name, task(name).parts)]

    return parts


def asks(stage):
    """The resources of a stage's job, by its recipe; more time and memory on each retry."""

    def grown(field):
        return lambda wildcards, attempt: attempt * getattr(
            task(f"{stage}/{wildcards.name}"), field
        )

    minutes = grown("minutes")
    return {
        "mem_mb": grown("memory_mb"),
        "runtime": lambda wildcards, attempt: min(
            minutes(wildcards, attempt), CONFIG.longest_minutes
        ),
        "gpu": lambda wildcards: task(f"{stage}/{wildcards.name}").gpu,
    }


# The environment of every rule.
CONDA = "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"


onsuccess:
    if workflow.is_main_process and LOCAL:
        from robustfeatures.tools.status import computing_share

        seconds = time.monotonic() - BEGAN
        print(computing_share(PLAN, ARTIFACTS, STARTED, seconds, workflow.cores))
