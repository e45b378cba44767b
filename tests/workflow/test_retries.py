"""What a job asks for when it is tried again."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Workspace


@pytest.mark.slow
@pytest.mark.parametrize(("error", "growth"), [("StoppedError", [1, 1]), ("UserError", [1, 2])])
def test_memory_grows_after_a_failure_but_not_after_a_time_limit(
    workspace: Workspace, error: str, growth: list[int]
) -> None:
    workspace.edit(
        "src/robustfeatures/pipeline/run/stages/data.py",
        "    parts = prepare_splits(parameters, job.raw)\n",
        f"    from robustfeatures.errors import {error}\n    raise {error}('as told')\n",
    )
    workspace.edit("workflow/rules/common.smk", "task(name).memory_mb", "1000")
    # Snakemake prints what a job asks for only if the rule has no message.
    workspace.edit("workflow/rules/data.smk", '    message:\n        "data {wildcards.name}"\n', "")
    done = workspace.snakemake("--retries", "1", "--until", "data", check=False)
    assert done.returncode != 0
    asked = re.findall(r"resources:.*\bmem_mb=(\d+)", done.stderr)
    assert [int(one) for one in asked] == [1000 * one for one in growth]
    if growth[-1] > 1:
        # Another run counts anew.
        again = workspace.snakemake("--retries", "0", "--until", "data", check=False)
        assert re.findall(r"resources:.*\bmem_mb=(\d+)", again.stderr) == ["1000"]
