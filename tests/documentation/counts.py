"""The counts of verdicts of docs/results.md, from the claims in docs/: `python -m tests.documentation.counts`."""

from __future__ import annotations

import pandas as pd

from robustfeatures.pipeline.report.verdicts import count_verdicts, describe_counts, find_sentences
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"


def read_claims(study: str) -> pd.DataFrame:
    """The claims of a study that docs/ keeps."""
    return pd.read_csv(DOCS / study / "claims.csv", dtype={"setting": str}).fillna({"setting": ""})


def count_kept_verdicts(study: str) -> tuple[str, str]:
    """The verdicts of a study: on sentences of papers, and of controls."""
    sentences = find_sentences(read_claims(study).to_dict("records"))
    told = [describe_counts(count_verdicts(sentences, control=control)) for control in (False, True)]
    return told[0], told[1]


def find_counted_studies() -> list[str]:
    """The studies whose claims docs/ keeps."""
    return [path.parent.name for path in sorted(DOCS.glob("*/claims.csv"))]


if __name__ == "__main__":
    for name in find_counted_studies():
        print(name, *count_kept_verdicts(name), sep=" | ")
