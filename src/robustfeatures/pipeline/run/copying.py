"""Copy a network that another job has trained with probes. Probes change no weight, so it need not be trained again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.references import read_reference

if TYPE_CHECKING:
    from robustfeatures.pipeline.store.lease import Lease
    from robustfeatures.pipeline.store.store import Store

log = logging.getLogger(__name__)

WEIGHTS, HISTORY = "model.safetensors", "history.csv"


def copy_network(
    reference: Path, identity: Mapping[str, Any], inputs: Mapping[str, str], store: Store, lease: Lease
) -> bool:
    """Publish the weights of a training with probes as those of the one without; whether this was possible.

    `identity` and `inputs` are those of the training without probes, the latter as digests of their content by role.
    The history of a training without probes has no rows. Weights that were made by other code and accepted are not
    copied, because they were accepted for that training alone.
    """
    try:
        found = read_reference(reference)
        weights, history = store.verified(found["key"], found["content"], [WEIGHTS, HISTORY])
    except UserError as error:
        log.info("not copied: %s", error)
        return False
    if "accepted" in found:
        return False
    log.info("copied from %s, which has the same network", found["key"])
    lease.fresh.mkdir()
    shutil.copyfile(weights, lease.fresh / WEIGHTS)
    with history.open("rb") as rows:
        (lease.fresh / HISTORY).write_bytes(rows.readline())
    built = {name: value for name, value in found["built"].items() if name != "probe_seconds"}
    built |= {
        # The seconds that the network takes. They count as computing only where it was trained.
        "computing_seconds": 0.0,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "copied_from": found["key"],
    }
    store.publish(lease, {"content": found["content"], "identity": identity, "inputs": inputs, "built": built})
    return True
