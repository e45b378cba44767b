"""A forked Snakemake is the one that a new process would be, and so are its jobs and the commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import forking
from tests.conftest import hurried
from tests.forking import run_module, run_snakemake
from tests.slurm.cluster import until

# Prints what a process gets from the one that starts it, and the modules that no file of ours may have imported before.
FACTS = """
import atexit, json, os, sys

atexit.register(print, "at the exit")
umask = os.umask(0)
os.umask(umask)
# A shell's variable for the path of what it starts.
os.environ.pop("_", None)
print(json.dumps([
    os.getcwd(), dict(os.environ), sys.argv, sys.orig_argv[1:], sys.path, sys.flags.safe_path, umask,
    os.getpriority(os.PRIO_PROCESS, 0), sorted({"robustfeatures", "tests", "pytest", "torch"} & set(sys.modules)),
], sort_keys=True))
print("an error", file=sys.stderr)
print(open(f"/proc/{os.getppid()}/cmdline").read(), file=sys.stderr)
"""
SNAKEFILE = f"""{FACTS}
rule all:
    shell: "echo ${{{{ANSWER-none}}}}; exit {{config[code]}}"
"""
# `path` holds a package called robustfeatures; jobs and commands begin with `python -m robustfeatures`.
WITH_JOB = """
import shlex, sys

rule all:
    params: f"{shlex.quote(sys.executable)} -m robustfeatures"
    shell: "export PYTHONPATH={config[path]} ANSWER=42; {params} 'a b' {config[ending]} && echo 0 || echo $?"
"""
ENDINGS = {
    "0": "sys.exit()",
    "3": "sys.exit(3)",
    "error": "raise ValueError('an error')",
    "137": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize(("code", "variables"), [(0, {"ANSWER": "42"}), (3, {"ANSWER": ""}), (0, {"PYTHONPATH": "/x"})])
def test_it_equals_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, variables: dict[str, str]
) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    arguments = ["--cores", "1", "--quiet", "all", "--config", f"code={code}"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environment = dict(os.environ)
    # It starts with another priority than the calls have.
    forking._server(forking.SNAKEMAKE)
    with hurried():
        new = forking._start("snakemake", tmp_path, arguments, environment)
        forked = run_snakemake(tmp_path, arguments, environment)
    assert (new.returncode, new.stderr.count("an error")) == (1 if code else 0, 1)
    assert (forked.args, forked.returncode, forked.stdout) == (new.args, new.returncode, new.stdout)
    assert forked.stderr.count("an error") == 1
    # What Python reads while it starts needs a process that has not been forked.
    assert ("tests/forking.py" in forked.stderr) == ("PYTHONPATH" not in variables)
    assert "tests/forking.py" not in new.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package called robustfeatures that prints the facts and ends as its last argument says."""
    (tmp_path / "path" / "robustfeatures").mkdir(parents=True)
    (tmp_path / "path" / "robustfeatures" / "__init__.py").touch()
    ending = "".join(f"if sys.argv[-1] == {name!r}: {code}\n" for name, code in ENDINGS.items())
    (tmp_path / "path" / "robustfeatures" / "__main__.py").write_text(f"{FACTS}\n{ending}")
    return tmp_path / "path"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_job_equals_one_in_a_new_process(tmp_path: Path, package: Path, ending: str) -> None:
    (tmp_path / "Snakefile").write_text(WITH_JOB)
    arguments = ["--cores", "1", "--quiet", "all", "--config", f"path={package}:relative", f"ending={ending}"]
    new = forking._start("snakemake", tmp_path, arguments, dict(os.environ))
    forked = run_snakemake(tmp_path, arguments, dict(os.environ))
    assert new.stdout.splitlines()[-1] == {"error": "1"}.get(ending, ending)
    assert without_libraries(forked.stdout) == without_libraries(new.stdout)
    assert ("tests/forking.py" in forked.stderr, "tests/forking.py" in new.stderr) == (True, False)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_command_equals_one_in_a_new_process(tmp_path: Path, package: Path, ending: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(package), "PATH": "/bin"}
    new = forking._start("robustfeatures", tmp_path, [ending], environment)
    forked = run_module("robustfeatures", tmp_path, [ending], environment)
    assert (forked.args, forked.returncode) == (new.args, new.returncode)
    assert without_libraries(forked.stdout) == without_libraries(new.stdout)
    assert ("tests/forking.py" in forked.stderr, "tests/forking.py" in new.stderr) == (True, False)


def test_a_job_ends_with_who_asked_for_it(tmp_path: Path, package: Path) -> None:
    code = "import os, time; from pathlib import Path; Path('number').write_text(str(os.getpid())); time.sleep(600)"
    (package / "robustfeatures" / "__main__.py").write_text(code)
    _, client = forking._server(forking.JOBS)
    command = [str(client), "-m", "robustfeatures"]
    asking = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(package)})
    number = tmp_path / "number"
    assert until(lambda: number.exists() and number.read_text() != "", 30)
    asking.kill()
    asking.wait()
    assert until(lambda: not is_running(int(number.read_text())), 30)


def without_libraries(printed: str) -> str:
    """What was printed, without the name of torch among the modules that were there before."""
    return printed.replace('"torch"', "").replace(", ]", "]")


def test_the_server_ends_with_the_tests(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("rule all:\n")
    code = (
        "import os, sys; from pathlib import Path; from tests import forking\n"
        "done = forking.run_snakemake(Path(sys.argv[1]), ['-n'], dict(os.environ))\n"
        "process, client = forking._server(forking.SNAKEMAKE)\n"
        "print(done.returncode, process.pid, client.parent, flush=True); os.kill(os.getpid(), 9)"
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
