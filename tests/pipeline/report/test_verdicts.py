"""The verdict on a sentence that a study repeats, and the counts."""

from __future__ import annotations

import itertools

import pytest

from robustfeatures.pipeline.report.verdicts import (
    VERDICTS,
    Sentence,
    count_verdicts,
    describe_counts,
    find_sentences,
)


def claim(verdict: str, sentence: str = "s", *, setting: str = "", control: bool = False) -> dict[str, object]:
    return {
        "experiment": "A1",
        "claim": sentence,
        "setting": setting,
        "source": "p",
        "control": control,
        "verdict": verdict,
    }


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ("held", "held"),
        ("held, held", "held"),
        ("held, not tested", "held"),
        ("not tested, not tested", "not tested"),
        ("held, undecided", "undecided"),
        ("held, contradicted", "undecided"),
        ("held, undecided, contradicted", "undecided"),
        ("undecided, contradicted", "contradicted"),
        ("contradicted, not tested", "contradicted"),
        ("undecided, not tested", "undecided"),
    ],
)
def test_a_sentence_is_held_only_where_every_tested_setting_holds_it(verdicts: str, together: str) -> None:
    for order in itertools.permutations(verdicts.split(", ")):
        assert Sentence([claim(verdict) for verdict in order]).verdict == together


def test_the_shares_of_the_settings_are_told() -> None:
    assert Sentence([claim("held")]).settings == ""
    told = Sentence([claim("undecided"), claim("held"), claim("held")]).settings
    assert told == "held in 2, undecided in 1 of 3 settings"


def test_a_sentence_counts_once_and_controls_are_counted_apart() -> None:
    rows = [
        claim("held", "a", setting="L2"),
        claim("contradicted", "b"),
        claim("held", "a", setting="Linf"),
        claim("held", "c", control=True),
        # The same words in another experiment are another sentence.
        {**claim("undecided", "a"), "experiment": "A2"},
        {**claim("not tested", "a"), "source": "another paper"},
    ]
    found = find_sentences(rows)
    assert [(len(each.claims), each.verdict) for each in found] == [
        (2, "held"),
        (1, "contradicted"),
        (1, "held"),
        (1, "undecided"),
        (1, "not tested"),
    ]
    counts = count_verdicts(found, control=False)
    assert counts == {"held": 1, "contradicted": 1, "undecided": 1, "not tested": 1}
    assert list(counts) == list(VERDICTS)
    assert count_verdicts(found, control=True) == {"held": 1}
    assert describe_counts(counts) == "1 held, 1 contradicted, 1 undecided, 1 not tested"
    assert describe_counts({}) == ""
