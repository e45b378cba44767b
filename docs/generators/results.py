"""The results that docs/ keeps of each study: which experiments it has, and the verdicts on their claims."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from robustfeatures.pipeline.report.verdicts import count_verdicts, describe_counts, find_sentences

DOCS = Path(__file__).parents[1]
# These come first, the others follow in the order of their names.
FIRST = ("digits", "digits-full", "theory")
PHOTOGRAPHS = (
    "not-bugs-cifar10-seed0",
    "feature-averaging-cifar10",
    "cifar10-mini",
    "feature-learning-photographs",
)


def find_studies(identifier: str) -> list[str]:
    """The studies of which docs/ keeps a table or a figure of an experiment."""
    found = {path.parent.name for suffix in ("md", "png") for path in DOCS.glob(f"*/{identifier}.{suffix}")}
    found.discard("experiments")
    return sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))


@cache
def _read_claims(study: str) -> pd.DataFrame:
    path = DOCS / study / "claims.csv"
    claims = pd.read_csv(path, dtype={"setting": str}) if path.exists() else pd.DataFrame({"experiment": []})
    if "control" not in claims:
        claims = claims.assign(setting="", control=False)
    return claims.fillna({"setting": ""})


def find_claims(study: str, identifier: str) -> list[dict[str, Any]]:
    """The claims of an experiment in a study, as claims.csv has them."""
    claims = _read_claims(study)
    return [
        {str(name): value for name, value in row.items()}
        for row in claims[claims["experiment"] == identifier].to_dict("records")
    ]


def count_claims(study: str, identifier: str) -> str:
    """How many sentences of the paper, and how many controls, have each verdict; empty without claims."""
    sentences = find_sentences(find_claims(study, identifier))
    papers, controls = (describe_counts(count_verdicts(sentences, control=control)) for control in (False, True))
    return "; ".join(part for part in (papers, controls and f"controls: {controls}") if part)
