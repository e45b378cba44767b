"""A forked Snakemake is the one that a new process would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import forking
from tests.conftest import hurried
from tests.forking import run_snakemake
from tests.slurm.cluster import until

# Prints what a process gets from the one that starts it, and the modules that no file of ours may have imported before.
SNAKEFILE = """
import atexit, json, os, sys

atexit.register(print, "at the exit")
umask = os.umask(0)
os.umask(umask)
print(json.dumps([
    os.getcwd(), dict(os.environ), sys.argv, sys.orig_argv[1:], sys.path, sys.flags.safe_path, umask,
    os.getpriority(os.PRIO_PROCESS, 0), sorted({"robustfeatures", "tests", "pytest", "torch"} & set(sys.modules)),
], sort_keys=True))
print("an error", file=sys.stderr)
print(open(f"/proc/{os.getppid()}/cmdline").read(), file=sys.stderr)

rule all:
    shell: "echo ${{ANSWER-none}}; exit {config[code]}"
"""


@pytest.mark.parametrize(("code", "variables"), [(0, {"ANSWER": "42"}), (3, {"ANSWER": ""}), (0, {"PYTHONPATH": "/x"})])
def test_it_equals_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, variables: dict[str, str]
) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    arguments = ["--cores", "1", "--quiet", "all", "--config", f"code={code}"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environment = dict(os.environ)
    command = [sys.executable, "-m", "snakemake", *arguments]
    # It starts with another priority than the calls have.
    forking._server()
    with hurried():
        new = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        forked = run_snakemake(tmp_path, arguments, environment)
    assert (new.returncode, new.stderr.count("an error")) == (1 if code else 0, 1)
    assert (forked.args, forked.returncode, forked.stdout) == (new.args, new.returncode, new.stdout)
    assert forked.stderr.count("an error") == 1
    # What Python reads while it starts needs a process that has not been forked.
    assert ("tests/forking.py" in forked.stderr) == ("PYTHONPATH" not in variables)
    assert "tests/forking.py" not in new.stderr


def test_the_server_ends_with_the_tests(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("rule all:\n")
    code = (
        "import os, sys; from pathlib import Path; from tests import forking\n"
        "done = forking.run_snakemake(Path(sys.argv[1]), ['-n'], dict(os.environ))\n"
        "process, address = forking._server()\n"
        "print(done.returncode, process.pid, address.parent, flush=True); os.kill(os.getpid(), 9)"
    )
    root = Path(forking.__file__).parents[1]
    # The server has the same output, and a pipe would be read until the server, too, has ended.
    with (tmp_path / "printed").open("w+") as printed:
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, cwd=root, stdout=printed, stderr=printed, check=False)
    assert done.returncode == -9, (tmp_path / "printed").read_text()
    returned, number, folder = (tmp_path / "printed").read_text().split()[-3:]
    assert returned == "0"
    assert until(lambda: not Path(folder).exists() and not is_running(int(number)), 30)


def is_running(number: int) -> bool:
    """Whether there is such a process. One that has ended may wait for its parent to ask how."""
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
