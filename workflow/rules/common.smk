# The plan: config.yaml's study unfolded into recipes, whose digests name the files that the rules make.
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The package runs from the source tree, in environments where it is not installed too.
SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))

from robustfeatures.errors import UserError, printable
from robustfeatures.inspection import computing_share
from robustfeatures.recipes.plan import prepare, read_config, unfold
from robustfeatures.recipes.yaml import read_yaml
from robustfeatures.store.references import Artifacts
from robustfeatures.store.store import Store

ARTIFACTS = Artifacts(Path("results/artifacts"))
BEGAN = time.monotonic()
STARTED = datetime.now(UTC).isoformat(timespec="seconds")

try:
    # Read here, since Snakemake's `configfile` evaluates expressions in it; `config` holds what `--config` says.
    values = read_yaml(Path("config.yaml"))
    CONFIG = read_config({**values, **config} if isinstance(values, dict) else values)
    PLAN = unfold(CONFIG, Path(workflow.basedir) / "workflow" / "studies")
    if workflow.is_main_process:
        prepare(PLAN, ARTIFACTS, Store(Path(CONFIG.store)))
except UserError as error:
    raise WorkflowError(str(error))
except OSError as error:
    where = "disk" if error.filename is None else error.filename
    raise WorkflowError(printable(f"{where}: {error.strerror or error}"))

# What every job is told beside its own recipe. None of it is part of a recipe, so it is kept out of the rules, where
# Snakemake would take a change for a reason to run them again.
SURROUNDINGS = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])
    ),
    "ROBUSTFEATURES_STORE": CONFIG.store,
    "ROBUSTFEATURES_RAW": CONFIG.raw,
    "ROBUSTFEATURES_DEVICE": CONFIG.device,
}
exports = " ".join(
    f"{name}={shlex.quote(value)}" for name, value in SURROUNDINGS.items()
)
escaped = exports.replace("{", "{{").replace("}", "}}")
shell.prefix(f"export {escaped}; ")


def references(artifacts):
    """The references of artifacts, `<stage>/<label>-<digest>`."""
    return [str(ARTIFACTS.reference(artifact)) for artifact in artifacts]


# The environment of every rule.
CONDA = "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"


onsuccess:
    print(
        computing_share(
            PLAN, ARTIFACTS, STARTED, time.monotonic() - BEGAN, workflow.cores or 1
        )
    )
