"""Real servers on the loopback for the tests of remotes: OpenSSH's sshd, and moto's S3."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
SECRET = "not-to-be-found-in-any-log"  # noqa: S105
ACCESS_KEY = "KEY-not-to-be-found"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server while the test runs; skips the test if it does not start."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        for _ in range(600):
            with socket.socket() as client:
                if process.poll() is not None:
                    pytest.skip(f"{command[0]} does not start here")
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def sftp_server(folder: Path, home: Path, *, read_only: bool = False) -> Iterator[str]:
    """The address of `folder` on an sshd; the user's keys and known hosts are in `home`/.ssh."""
    if SSHD is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    pytest.importorskip("sshfs")
    port, keys = free_port(), home / ".ssh"
    keys.mkdir(parents=True)
    for name in ("host", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    shutil.copy(keys / "id_ed25519.pub", keys / "authorized_keys")
    host = (keys / "host.pub").read_text()
    (keys / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    lines = (
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {keys / 'host'}",
        f"AuthorizedKeysFile {keys / 'authorized_keys'}",
        "StrictModes no",
        "PasswordAuthentication no",
        "PermitRootLogin yes",
        "UsePAM no",
        "PidFile none",
        f"Subsystem sftp internal-sftp{' -R' if read_only else ''}",
    )
    (home / "sshd_config").write_text("\n".join(lines) + "\n")
    with serving([SSHD, "-D", "-f", str(home / "sshd_config")], port):
        yield f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder}"


@contextmanager
def s3_server() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a bucket on moto's server, and the environment that leads to it."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with serving([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")  # noqa: S310
        request.add_header(
            "Authorization", f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/us-east-1/s3/aws4_request"
        )
        with urllib.request.urlopen(request):  # noqa: S310
            pass
        yield "s3://bucket/shared", environment


@contextmanager
def remote_of(kind: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty remote: a folder, or a place on a server."""
    match kind:
        case "folder":
            yield f"file://{folder / 'remote'}"
        case "sftp":
            patch.setenv("HOME", str(folder / "home"))
            with sftp_server(folder / "remote", folder / "home") as address:
                yield address
        case "s3":
            with s3_server() as (address, environment):
                for name, value in environment.items():
                    patch.setenv(name, value)
                yield address
