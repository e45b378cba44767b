"""Counts of verdicts, in which a sentence of a paper counts once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VERDICTS = ("held", "contradicted", "undecided", "not tested")
# Claims with the same values of these are one sentence in several settings.
SENTENCE = ("experiment", "claim", "source", "control")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper, or a control, with its claims, one per setting: rows of claims.csv."""

    claims: Sequence[Mapping[Any, Any]]

    @property
    def control(self) -> bool:
        """Whether it is a check of ours, which no paper prints."""
        return bool(self.claims[0]["control"])

    @property
    def verdict(self) -> str:
        """The verdict on the sentence as a whole, from the settings in which it was tested.

        held: in every one. contradicted: in at least one, and held in none. undecided: otherwise, so also where it is
        held in one setting and contradicted in another. not tested: in none.
        """
        found = {claim["verdict"] for claim in self.claims} - {"not tested"}
        if not found:
            return "not tested"
        if found == {"held"}:
            return "held"
        return "contradicted" if "contradicted" in found and "held" not in found else "undecided"

    @property
    def settings(self) -> str:
        """In how many settings it has which verdict: "held in 2 of 3 settings"; empty for one setting."""
        if len(self.claims) == 1:
            return ""
        shares = _count(claim["verdict"] for claim in self.claims)
        return (
            f"{', '.join(f'{verdict} in {count}' for verdict, count in shares.items())} of {len(self.claims)} settings"
        )


def find_sentences(claims: Iterable[Mapping[Any, Any]]) -> list[Sentence]:
    """The sentences of the rows of claims.csv, in order of appearance."""
    found: dict[tuple[Any, ...], list[Mapping[Any, Any]]] = {}
    for claim in claims:
        found.setdefault(tuple(claim[column] for column in SENTENCE), []).append(claim)
    return [Sentence(each) for each in found.values()]


def count_verdicts(sentences: Iterable[Sentence], *, control: bool) -> dict[str, int]:
    """How many sentences of papers, or how many controls, have each verdict, in the order of `VERDICTS`."""
    return _count(sentence.verdict for sentence in sentences if sentence.control == control)


def describe_counts(counts: Mapping[str, int]) -> str:
    """The counts as text: "3 held, 1 undecided"."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _count(verdicts: Iterable[str]) -> dict[str, int]:
    found = list(verdicts)
    return {verdict: found.count(verdict) for verdict in VERDICTS if verdict in found}
