"""A real Slurm of one node with two GPUs, in a temporary folder: munged, slurmctld and slurmd."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

GPUS = 2
DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "scancel", "scontrol", "sinfo")
# sbin is often missing from the search path, even from root's.
SEARCH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))

# More CPUs and memory than the machine may have: what can run at once is to follow from the GPUs alone.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
OverTimeLimit=0
KillWait=10
MinJobAge=3600
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 Gres=gpu:{gpus}
PartitionName=gpu Nodes={host} Default=YES DefMemPerCPU=500 State=UP
"""


class UnavailableError(Exception):
    """Slurm cannot be started here; the message says why, in one line."""


@dataclass(frozen=True)
class Job:
    """A job as the controller sees it; `state` is Slurm's word, such as RUNNING or TIMEOUT."""

    number: int
    state: str
    name: str
    comment: str
    gpus: int


@dataclass
class Watch:
    """What was seen of the jobs: the most GPUs allocated at one moment, and the last state of each job by number."""

    most_gpus: int = 0
    states: dict[int, str] = field(default_factory=dict)

    def sample(self, jobs: list[Job]) -> None:
        self.most_gpus = max(self.most_gpus, sum(job.gpus for job in jobs))
        self.states.update({job.number: job.state for job in jobs})


def parsed(line: str) -> Job:
    """A line of `scontrol --details --oneliner show job`."""

    def value(name: str) -> str:
        found = re.search(rf"(?:^| ){name}=(\S*)", line)
        return found.group(1) if found else ""

    # GRES stands only with jobs that hold some, also while they are COMPLETING.
    gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:(, ]+)?:(\d+)", value("GRES")))
    return Job(int(value("JobId")), value("JobState"), value("JobName"), value("Comment"), gpus)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@contextmanager
def repeated(action: Callable[[], None]) -> Iterator[None]:
    """Does the action five times a second in a thread, and once more on leaving."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.2):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        action()


class Cluster:
    """The running Slurm. `environment` is what a process needs to use it, the surroundings' variables included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join((str(folder / "bin"), SEARCH))
        self.environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        """What the command prints; raises AssertionError with its error text if it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def submit(self, *arguments: str) -> int:
        """The number of a new job; its output goes nowhere unless the arguments say where."""
        return int(self.run("sbatch", "--parsable", "--output=/dev/null", *arguments))

    def squeue(self) -> list[Job]:
        """All jobs since the start of the cluster, ended ones too."""
        lines = self.run("scontrol", "--details", "--oneliner", "show", "job").splitlines()
        return [parsed(line) for line in lines if line.startswith("JobId=")]

    def state(self, number: int) -> str:
        return {job.number: job.state for job in self.squeue()}[number]

    def wait(self, number: int, *states: str, seconds: float = 60) -> str:
        """The state of the job once it is one of `states`; AssertionError if that takes longer than `seconds`."""
        assert until(lambda: self.state(number) in states, seconds), (
            f"job {number} is {self.state(number)}, with the processes {self.command_lines(number)}"
        )
        return self.state(number)

    def processes(self, number: int) -> list[int]:
        """Ids of the job's processes: the batch script's and those of its steps; none unless it runs."""
        command = ["scontrol", "listpids", str(number)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return [int(row.split()[0]) for row in done.stdout.splitlines()[1:]]

    def command_lines(self, number: int) -> list[str]:
        """What the job's processes run."""
        command = ["ps", "--format=args=", "--pid", ",".join(map(str, self.processes(number)))]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    def cancel(self, number: int, signal: signal.Signals | None = None) -> None:
        """Cancels the job, or sends the signal to its steps."""
        self.run("scancel", *([f"--signal={signal.name}"] if signal else []), str(number))

    def end_in(self, number: int, seconds: int) -> None:
        """Moves the running job's time limit to `seconds` from now; the controller looks only every 30 s."""
        self.run("scontrol", "update", f"JobId={number}", f"EndTime=now+{seconds}")

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """Samples the jobs; the last states are taken on leaving."""
        seen = Watch()
        before = {job.number for job in self.squeue()}
        with repeated(lambda: seen.sample([job for job in self.squeue() if job.number not in before])):
            yield seen


def missing() -> str | None:
    """Why Slurm cannot be started here, as far as that is known without trying."""
    absent = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name, path=SEARCH) is None]
    if absent:
        return f"Slurm is not installed (no {', '.join(absent)}); Debian's packages are slurm-wlm and munge"
    return None if os.geteuid() == 0 else "Slurm's daemons run jobs only when started by root"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


def configure(folder: Path) -> None:
    """Writes the configuration files, the key, the stand-ins for devices and a command into the folder."""
    for name in ("munge", "state", "spool", "bin"):
        (folder / name).mkdir(mode=0o755)
    (folder / "munge" / "key").touch(mode=0o600)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(128))
    controller, node = free_ports(2)
    host = socket.gethostname().split(".")[0]
    text = CONFIGURATION.format(host=host, controller=controller, node=node, folder=folder, gpus=GPUS)
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    # Snakemake's job step executor removes SLURM_CONF, like all of Slurm's variables, before it calls srun.
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun", path=SEARCH)} "$@"\n')
    srun.chmod(0o755)
    # slurmd drops GPUs without a device file ("Removing file-less GPU"), and numbers them by their files' last digit.
    for index in range(GPUS):
        (folder / f"gpu{index}").symlink_to(os.devnull)
    (folder / "gres.conf").write_text(f"Name=gpu Count={GPUS} File={folder}/gpu[0-{GPUS - 1}]\n")


def commands(folder: Path) -> dict[str, list[str]]:
    """How each daemon is started, in the foreground."""
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{option}={folder}/munge/{name}" for option, name in names.items()]
    options = {"munged": ["--foreground", *munge], "slurmctld": ["-D", "-c"], "slurmd": ["-D"]}
    return {name: [shutil.which(name, path=SEARCH) or name, *options[name]] for name in DAEMONS}


def last_words(folder: Path) -> str:
    """The last line of each daemon's output."""
    outputs = {path.stem: path.read_text(errors="replace").splitlines() for path in sorted(folder.glob("*.out"))}
    return "; ".join(f"{name}: {lines[-1]}" for name, lines in outputs.items() if lines)


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that ends with the context, or with this process, however that ends.

    Raises UnavailableError where Slurm cannot be started.
    """
    reason = missing()
    if reason:
        raise UnavailableError(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    # munged refuses a socket that not all users can reach.
    folder.chmod(0o755)
    configure(folder)
    cluster = Cluster(folder)
    supervisor = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("supervisor.py")), str(folder)],
        stdin=subprocess.PIPE,
        env=cluster.environment,
        text=True,
        start_new_session=True,
    )
    assert supervisor.stdin is not None

    def idle() -> bool:
        command = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False)
        return done.stdout.strip() == "idle"

    try:
        for name, command in commands(folder).items():
            supervisor.stdin.write(json.dumps(command) + "\n")
            supervisor.stdin.flush()
            if name == "munged":
                until((folder / "munge" / "socket").exists, 10)
        if not until(idle, 30):
            raise UnavailableError(f"Slurm does not start ({last_words(folder)})")
        yield cluster
    finally:
        supervisor.stdin.close()
        supervisor.wait(60)
