# The plan: the study of config.yaml, unfolded into recipes. Their digests are in the names of the files that the rules
# make. Only the main process unfolds the study. A job that a scheduler starts reads the task that was written for it.
import atexit
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod

# The folder of this workflow. In another workflow, `workflow.basedir` would be the folder of that one.
HERE = Path(workflow.current_basedir.get_path_or_uri(secret_free=False)).parents[1]
# The package runs from the source tree, so that it need not be installed.
SOURCE = HERE / "src"
if not SOURCE.is_dir():
    raise WorkflowError(
        f"{HERE}: not a clone on this machine; clone the repository and run Snakemake in it"
    )
if {*"{}"} & {*str(HERE)}:
    raise WorkflowError(
        f"{HERE}: Snakemake reads braces as names of wildcards; move the clone to a folder without them"
    )
sys.path.insert(0, str(SOURCE))

from robustfeatures.errors import UserError, make_printable
from robustfeatures.pipeline.study.config import read_config, read_words
from robustfeatures.pipeline.plan.tasks import read_task
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.pipeline.store.references import Artifacts

# Another workflow may use this one as a module, with a `prefix` for its paths. Snakemake puts it before the paths of the
# rules, which are those of `TRACKED`; the files are those of `ARTIFACTS`.
IS_MODULE = not workflow.modifier.is_main_snakefile()
TRACKED = Artifacts(Path("results/artifacts"))
ARTIFACTS = Artifacts(Path(workflow.modifier.modify_path("results/artifacts")))


def forget_stops():
    """Count anew how often the jobs of this run were stopped."""
    for each in PLANNED.tasks:
        ARTIFACTS.forget_stops(each.name, each.parts)


BEGAN = time.monotonic()
STARTED = datetime.now(UTC).isoformat(timespec="seconds")

try:
    # Snakemake's `configfile` would evaluate expressions in the file. `config` holds the values of `--config`, or those
    # that another workflow gives. The file beside that one is not ours. Another folder (`--directory`) may have its own.
    own = Path("config.yaml")
    values = read_yaml(HERE / own if IS_MODULE or not own.exists() else own)
    given = read_words(config)
    CONFIG = read_config(
        {**values, **given} if isinstance(values, dict) else values,
        elsewhere=dict.fromkeys(given, "--config, or a configfile"),
    )
    # The captions of `snakemake --report` name the study.
    config["study"] = CONFIG.study
    STORE, RAW = map(
        str, map(workflow.modifier.modify_path, (CONFIG.store, CONFIG.raw))
    )
    TASKS, VIEW_JOBS, GPUS = {}, {}, ()
    # The executor is not known yet. Executors that submit jobs elsewhere count them as nodes (`--jobs`).
    LOCAL = workflow.resource_settings.nodes is None
    USES_CONDA = (
        DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    )
    if workflow.is_main_process:
        from robustfeatures.pipeline.plan.prepare import plan_run
        from robustfeatures.pipeline.plan.tasks import announce_tasks
        from robustfeatures.pipeline.store.store import Store
        from robustfeatures.pipeline.study.study import find_study

        studies = HERE / "workflow" / "studies"
        if "study" in given:
            find_study(studies, CONFIG.study, "--config: study")
        PLANNED = plan_run(
            CONFIG,
            studies,
            ARTIFACTS,
            Store(Path(STORE)),
            is_local=LOCAL,
            uses_conda=USES_CONDA,
        )
        for line in PLANNED.lines:
            print(f"robustfeatures: {line}", file=sys.stderr)
        # A dry run beside this run, or the plan of another study, does not change them.
        announce_tasks(ARTIFACTS, PLANNED.name)
        if IS_MODULE:
            # Snakemake ignores the `onstart` of a module.
            forget_stops()
        PLANNED.check_gpus()
        TASKS = {task.name: task for task in PLANNED.tasks}
        VIEW_JOBS, GPUS = PLANNED.plan.view_jobs, PLANNED.devices.gpus
        USES_GPUS = any(task.gpu for task in PLANNED.tasks)
        if USES_GPUS and LOCAL and "gpu" not in workflow.global_resources:
            workflow.register_resource("gpu", max(1, len(GPUS) * CONFIG.jobs_per_gpu))
except UserError as error:
    raise WorkflowError(str(error))
except OSError as error:
    where = "disk" if error.filename is None else error.filename
    raise WorkflowError(make_printable(f"{where}: {error.strerror or error}"))

# The environment of every job. No recipe depends on it. It is not set by `shell.prefix`, which would also set it for the
# rules of a workflow that uses this one.
ENVIRONMENT = {
    "ROBUSTFEATURES_STORE": STORE,
    "ROBUSTFEATURES_RAW": RAW,
    "ROBUSTFEATURES_DEVICE": CONFIG.device,
    "ROBUSTFEATURES_GPU_FAST_PATH": str(int(CONFIG.gpu_fast_path)),
    # A scheduler gives each job its own GPUs. Jobs of one machine share its GPUs.
    "ROBUSTFEATURES_GPUS": ",".join(GPUS),
    "ROBUSTFEATURES_JOBS_PER_GPU": str(CONFIG.jobs_per_gpu),
    "ROBUSTFEATURES_MIX_GPU_MODELS": str(int(CONFIG.mix_gpu_models)),
}
exports = " ".join(
    f"{name}={shlex.quote(value)}" for name, value in ENVIRONMENT.items()
)
# With --use-conda Snakemake clears the user's PYTHONPATH for each job, so the job's shell reads it.
pythonpath = shlex.quote(str(SOURCE)) + '"${PYTHONPATH:+:$PYTHONPATH}"'
escaped = f"PYTHONPATH={pythonpath} {exports}".replace("{", "{{").replace("}", "}}")
# The environment of conda has a Python of its own. Otherwise a job runs in Snakemake's, whichever is first on the PATH.
python = "python" if USES_CONDA else shlex.quote(sys.executable)
python = python.replace("{", "{{").replace("}", "}}")
RUN = f"export {escaped}; {python} -m robustfeatures"
# The commands of the rules.
BUILD = f"{RUN} build {{output:q}} --threads {{threads}} --log {{log:q}}"
BUILD_PART = (
    f"{RUN} build {{params.whole:q}} --part {{wildcards.part}} --parts {{wildcards.parts}}"
    " --threads {threads} --log {log:q}"
)
VIEW = f"{RUN} view {{output.references:q}} --log {{log:q}}"


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
        str(TRACKED.reference(TASK_OF.get(artifact, artifact)))
        for artifact in artifacts
    ]


def inputs_of(stage):
    """The input function of a stage's rule: the references of the job's inputs."""
    return lambda wildcards: references(task(f"{stage}/{wildcards.name}").inputs)


def finished_parts(stage):
    """The input function of a stage that several jobs may share: the files of the finished parts."""

    def parts(wildcards):
        name = f"{stage}/{wildcards.name}"
        return [str(path) for path in TRACKED.parts(name, task(name).parts)]

    return parts


def resources_of(stage, is_part=False):
    """The resources of a stage's job, by its recipe; more time on each retry, and more memory after a failure."""

    def memory(wildcards, attempt):
        name = f"{stage}/{wildcards.name}"
        # A job that ran out of time needs no more memory.
        stops = ARTIFACTS.stops(name, getattr(wildcards, "part", None))
        return max(1, attempt - stops) * task(name).memory_mb

    def gpu(wildcards):
        found = task(f"{stage}/{wildcards.name}")
        return found.gpu if is_part else found.gpu_of_whole

    return {
        "mem_mb": memory,
        "runtime": lambda wildcards, attempt: min(
            attempt * task(f"{stage}/{wildcards.name}").minutes, CONFIG.longest_minutes
        ),
        "gpu": gpu,
        # Slurm may otherwise spread the GPUs of a job over several nodes.
        "nodes": 1,
    }


def threads_of(stage):
    """The threads of a stage's job: those of a process, for each of its processes."""
    return (
        lambda wildcards: CONFIG.threads_per_job
        * task(f"{stage}/{wildcards.name}").processes
    )


# The environment of every rule.
CONDA = "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"


def gpu_places():
    """The most jobs that use a GPU of this machine at once; 0 if none does."""
    if not USES_GPUS:
        return 0
    at_once = max(1, workflow.cores // CONFIG.threads_per_job)
    return min(workflow.global_resources["gpu"].value, at_once)


def say_expectation():
    """Log how long the jobs of this run should take on this machine, if that is long."""
    from robustfeatures.tools.expectation import expect

    outputs = {str(path) for job in workflow.dag.needrun_jobs() for path in job.output}
    tasks = [
        each for each in PLANNED.tasks if str(ARTIFACTS.reference(each.name)) in outputs
    ]
    device = "cuda" if USES_GPUS else "cpu"
    # Two jobs that share a GPU are hardly faster than one after the other. `--resources gpu=1` may allow fewer jobs.
    gpus = min(len(GPUS), gpu_places())
    expected = expect(
        PLANNED.plan,
        tasks,
        ARTIFACTS,
        CONFIG,
        cores=workflow.cores,
        device=device,
        gpus=gpus,
    )
    if expected:
        logger.info(expected)


onstart:
    if workflow.is_main_process:
        # A dry run beside this one must not do it.
        forget_stops()
        if LOCAL:
            say_expectation()


def say_last(lines):
    """Print lines after the last ones of Snakemake, which follow those that its hooks print."""
    # What is registered last is called first.
    for line in reversed(list(lines)):
        atexit.register(print, make_printable(line), file=sys.stderr)


onsuccess:
    if workflow.is_main_process and LOCAL:
        from robustfeatures.tools.ending import describe_success

        seconds = time.monotonic() - BEGAN
        say_last(
            describe_success(
                PLANNED.plan,
                ARTIFACTS,
                STARTED,
                seconds,
                workflow.cores,
                gpu_places(),
            )
        )


onerror:
    if workflow.is_main_process:
        from robustfeatures.tools.ending import describe_failures

        began = datetime.fromisoformat(STARTED).timestamp()
        say_last(describe_failures(PLANNED.plan, PLANNED.tasks, ARTIFACTS, began))
