"""Copy a network that another job has trained with probes. Probes change no weight, so it need not be trained again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.recipe import STAGES
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.references import read_reference
from robustfeatures.pipeline.store.store import discard

if TYPE_CHECKING:
    from robustfeatures.pipeline.store.lease import Lease
    from robustfeatures.pipeline.store.store import Store

log = logging.getLogger(__name__)

WEIGHTS, HISTORY = STAGES["model"].payload, "history.csv"


def copy_network(
    reference: Path, identity: Mapping[str, Any], inputs: Mapping[str, str], store: Store, lease: Lease
) -> bool:
    """Publish the weights of a training with probes as those of the one without; whether this was possible.

    `identity` and `inputs` are those of the training without probes, the latter as digests of their content by role.
    The history of a training without probes has no rows.
    """
    try:
        found = read_reference(reference)
        _copy(found, inputs, store, lease.fresh)
    except (UserError, OSError) as error:
        log.warning("trained here, because it could not be copied: %s", error)
        discard(lease.fresh)
        return False
    log.info("copied from %s, which has the same network", found["key"])
    built = dict(found["built"])
    # What a training without probes takes. Sums leave it out where they have the original.
    built["computing_seconds"] = round(built["computing_seconds"] - built.pop("probe_seconds", 0.0), 3)
    built["copied_from"] = found["key"]
    store.publish(lease, {"content": found["content"], "identity": identity, "inputs": inputs, "built": built})
    return True


def _copy(found: Mapping[str, Any], inputs: Mapping[str, str], store: Store, folder: Path) -> None:
    """Copy the weights that a reference names to a new folder.

    Raises:
        UserError: they are damaged, were trained on other images, or were made by other code.
    """
    if "accepted" in found:
        raise UserError(f"{found['key']} was accepted for the training with probes alone")
    weights, history = store.verified(found["key"], found["content"], [WEIGHTS, HISTORY])
    manifest = store.manifest(found["key"])
    if manifest is None or manifest["inputs"]["data"] != inputs["data"]:
        raise UserError(f"{found['key']} was trained on other images")
    folder.mkdir()
    shutil.copyfile(weights, folder / WEIGHTS)
    with history.open("rb") as rows:
        (folder / HISTORY).write_bytes(rows.readline())
    if content_digest(folder / WEIGHTS) != found["content"]:
        raise UserError(f"{weights}: damaged")
