"""The counts of verdicts in README and in docs are those of the claims that docs/ keeps."""

from __future__ import annotations

import re

from robustfeatures.pipeline.report.verdicts import count_verdicts, find_sentences
from tests.conftest import REPOSITORY
from tests.documentation.counts import DOCS, count_kept_verdicts, find_counted_studies, read_claims


def test_the_table_of_results() -> None:
    shown = {}
    for line in (DOCS / "results.md").read_text().splitlines():
        if found := re.match(r"\| \[([\w-]+)\]\(\1/README\.md\) \|", line):
            cells = [cell.strip() for cell in line.split("|")]
            shown[found[1]] = (cells[3], cells[4])
    assert len(shown) > 5
    assert shown == {name: count_kept_verdicts(name) for name in find_counted_studies()}


def test_the_sum_in_the_readme() -> None:
    text = " ".join((REPOSITORY / "README.md").read_text().split())
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    found = re.search(r"(\d+) of (\d+) sentences of the papers are (held, [^.]*)\.", text)
    assert found is not None
    held, total, rest = found.groups()
    told = f"{held} {rest.replace(' and', ',')}"
    assert told == count_kept_verdicts("digits-full")[0]
    assert sum(map(int, re.findall(r"\d+", told))) == int(total)
    claims, toy_models = read_claims("digits-full"), read_claims("theory")["experiment"]
    on_digits = claims[~claims["experiment"].isin(toy_models)].to_dict("records")
    counts = count_verdicts(find_sentences(on_digits), control=False)
    assert f"On digits alone {counts['held']} of {sum(counts.values())} are held." in text
