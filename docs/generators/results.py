"""The results that docs/ keeps of each study: which experiments it has, and the verdicts on their claims."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from robustfeatures.pipeline.report.verdicts import count_verdicts, describe_counts, find_sentences
from robustfeatures.pipeline.report.views.report import read_claims

DOCS = Path(__file__).parents[1]
# Studies of complete CIFAR-10 come first, then those of fewer photographs, then the others, beginning with FIRST.
FEW_PHOTOGRAPHS = ("cifar10-mini", "feature-learning-photographs")
FIRST = ("digits", "digits-full", "theory")


def shows_photographs(study: str) -> bool:
    """Whether the images of a study of docs/ are photographs; its name tells."""
    return "cifar10" in study or "photographs" in study


def find_studies(identifier: str) -> list[str]:
    """The studies of which docs/ keeps a table or a figure of an experiment; those with most photographs come first."""
    found = {path.parent.name for suffix in ("md", "png") for path in DOCS.glob(f"*/{identifier}.{suffix}")}
    found.discard("experiments")
    return sorted(found, key=_place)


def _place(study: str) -> tuple[bool, bool, int, str]:
    rank = FIRST.index(study) if study in FIRST else len(FIRST)
    return not shows_photographs(study), study in FEW_PHOTOGRAPHS, rank, study


@cache
def _read_claims(study: str) -> pd.DataFrame:
    path = DOCS / study / "claims.csv"
    return read_claims(path) if path.exists() else pd.DataFrame({"experiment": []})


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
