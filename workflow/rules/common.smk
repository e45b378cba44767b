# The plan: config.yaml's study unfolded into recipes, whose digests name the files that the rules make.
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The package runs from the source tree, in environments where it is not installed too.
SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))
shell.prefix(f"export PYTHONPATH={str(SOURCE)!r}${{{{PYTHONPATH:+:$PYTHONPATH}}}}; ")

from robustfeatures.errors import UserError
from robustfeatures.inspection import computing_share
from robustfeatures.recipes.plan import prepare, read_config, unfold
from robustfeatures.store.references import Artifacts
from robustfeatures.store.store import Store

ARTIFACTS = Artifacts(Path("results/artifacts"))
BEGAN = time.monotonic()
STARTED = datetime.now(UTC).isoformat(timespec="seconds")

try:
    CONFIG = read_config(config)
    PLAN = unfold(CONFIG, Path(workflow.basedir) / "workflow" / "studies")
    if workflow.is_main_process:
        prepare(PLAN, ARTIFACTS, Store(Path(CONFIG.store)))
except UserError as error:
    raise WorkflowError(str(error))
except OSError as error:
    raise WorkflowError(f"{error.filename}: {error.strerror}")

# Rules read these from the configuration, so that a default need not be written there.
config.update(store=CONFIG.store, device=CONFIG.device)


def references(artifacts):
    """The references of artifacts, `<stage>/<label>-<digest>`."""
    return [str(ARTIFACTS.reference(artifact)) for artifact in artifacts]


# The environment of every rule.
CONDA = "../../envs/gpu.yaml" if CONFIG.device == "cuda" else "../../envs/cpu.yaml"


onsuccess:
    print(computing_share(PLAN, ARTIFACTS, STARTED, time.monotonic() - BEGAN, workflow.cores or 1))
