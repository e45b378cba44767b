"""Find the reference that a person means: by its path, or by label, digest, seed or stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from robustfeatures.errors import UserError, suggest
from robustfeatures.files import ABSENT, read_json
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH
from robustfeatures.pipeline.plan.recipe import STAGES
from robustfeatures.pipeline.store.references import Artifacts

# The end of the name of a file that stands for a batch of seeds, before its digest.
BATCH = re.compile(r"-\d+-seeds-[0-9a-f]+$")
# Labels in a message.
MOST_NAMED = 5


def find_reference(
    given: str, artifacts: Artifacts, planned: Callable[[], Collection[str]] = tuple, study: str | None = None
) -> Path:
    """The reference at a path (`...json`), or the only one with the label `given`.

    The label may have its stage before it, its digest or the digest's beginning after it, and may lack the seed:
    `model/digits-standard-seed0-a7b6`, `digits-standard`. Of several builds of a label the one is taken that is among
    the names of `planned`, as a study has them: `model/digits-standard-seed0-a7b6a2f0c1d2e3f4`. If `study` names this
    study, only its builds count.

    Raises:
        UserError: no reference has that label, or several have; the message names them. Or the study has not built it.
    """
    if given.endswith(".json"):
        if study is not None:
            raise UserError(f"--study: {given} is a path, which names one build; leave --study out")
        return Path(given)
    stage, _, name = given.rpartition("/")
    stages = {path.parent.name for path in list_references(artifacts)}
    if stage and stage not in stages:
        raise UserError(f"{given}: there is no stage {stage!r}{suggest(stage, stages)}")
    known = [path for path in list_references(artifacts) if stage in ("", path.parent.name)]
    found = [path for path in known if _has_name(path, name)]
    if not found:
        raise UserError(f"{given}: there is no artifact with this label{_suggest_label(name, known)}")
    if len(found) > 1 or study is not None:
        present = planned()
        own = [path for path in found if f"{path.parent.name}/{path.stem}" in present]
        if study is not None and not own:
            raise UserError(f"{given}: the study {study}, as it is now, has not built it; there are other builds")
        found = own or found
    if len(found) > 1:
        names = ", ".join(f"{path.parent.name}/{path.stem}" for path in found)
        raise UserError(f"{given}: {len(found)} artifacts have this label: {names}; give one of these")
    return found[0]


def list_references(artifacts: Artifacts) -> Iterator[Path]:
    """All references, by stage and label. The files of batches and parts are none."""
    for path in sorted(artifacts.root.glob("*/*.json")):
        # The names of tables, figures and pages begin with that of the study, which may look like that of a batch.
        is_batch = path.parent.name in STAGES and BATCH.search(path.stem) and _stands_for_several(path)
        if not path.parent.name.startswith(".") and not is_batch:
            yield path


def _stands_for_several(path: Path) -> bool:
    # A data set may have such a name too.
    try:
        return "artifacts" in read_json(path)
    except (*ABSENT, ValueError, TypeError):
        return False


def label_of(path: Path) -> str:
    """The label in the name of a reference."""
    return path.stem[: -DIGEST_LENGTH - 1]


def family_of(label: str) -> str:
    """The label without its seed."""
    family, _, seed = label.rpartition("-seed")
    return family if family and seed.isdecimal() else label


def _has_name(path: Path, name: str) -> bool:
    label = label_of(path)
    return name in (label, family_of(label)) or (path.stem.startswith(name) and name.startswith(f"{label}-"))


def _suggest_label(name: str, known: list[Path]) -> str:
    labels = sorted({label_of(path) for path in known})
    containing = [label for label in labels if name in label]
    if containing:
        shown = ", ".join(containing[:MOST_NAMED])
        return f"; labels that contain it: {shown}{', ...' if len(containing) > MOST_NAMED else ''}"
    near = suggest(name, labels)
    return near if "did you mean" in near else "; `robustfeatures list` prints all labels"
