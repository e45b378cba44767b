"""A process that keeps freed memory requests no page twice."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from robustfeatures.pipeline.run.memory import keep_freed_memory

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_freed_memory()
start = torch.ones(64, 16, 16, 16)
def work():
    made = [start + number for number in range(8)]
    return sum(each.sum().item() for each in made)
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's allocator")
def test_no_page_is_asked_for_twice() -> None:
    def faults(how: str) -> int:
        # glibc raises its threshold when blocks are freed, unless it was set. Setting it is like a fresh process.
        set_ = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
        done = subprocess.run([sys.executable, "-c", FAULTS, how], env=set_, capture_output=True, text=True, check=True)
        return int(done.stdout)

    # Eight tensors of 256 pages, a hundred times.
    assert faults("keep") < 1000
    assert faults("as is") > 100_000
