"""Downloads that break, are damaged, run twice at once, or have no server."""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from robustfeatures.data import download as downloads
from robustfeatures.data.download import Download, check_counts, download
from robustfeatures.data.raw import RawData
from robustfeatures.data.registry import SOURCES, Size, SourceEntry
from robustfeatures.errors import UserError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BLOCK = 1 << 16


class Server:
    """A local HTTP server of files in memory, which records requests and counts the bytes it sends.

    `cuts`: after how many bytes it closes each of the next connections. `ranges`: whether it knows ranges.
    `seconds_per_block`: how long it waits before each block of 64 KiB.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.cuts: list[int] = []
        self.ranges = True
        self.seconds_per_block = 0.0
        self.sent = 0
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                # A client that was killed closes its connection.
                with suppress(ConnectionError):
                    outer.answer(self)

            def log_message(self, *_: object) -> None:
                """Write nothing to the terminal."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name, wanted = request.path.removeprefix("/"), request.headers.get("Range")
        self.asked.append((name, wanted))
        if name not in self.files:
            request.send_error(404)
            return
        content, begin = self.files[name], 0
        if wanted and self.ranges:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if begin >= len(content):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(content) - begin))
        request.end_headers()
        end = min(begin + self.cuts.pop(0), len(content)) if self.cuts else len(content)
        for first in range(begin, end, BLOCK):
            time.sleep(self.seconds_per_block)
            block = content[first : min(first + BLOCK, end)]
            # Counted first: a client that has the last block may look at the count at once.
            self.sent += len(block)
            request.wfile.write(block)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    running = Server({"a.bin": CONTENT})
    yield running
    running.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def closed_port() -> str:
    """The address of a server that does not exist."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("checksum", [{"md5": MD5}, {"sha256": SHA256}], ids=["md5", "sha256"])
def test_a_file_is_brought_once(server: Server, tmp_path: Path, checksum: dict[str, str]) -> None:
    path = tmp_path / "new" / "a.bin"
    for _ in range(2):
        download(server.url + "a.bin", path, **checksum)
        assert path.read_bytes() == CONTENT
    assert server.asked == [("a.bin", None)]
    assert visible(path.parent) == ["a.bin"]


def test_a_file_that_is_there_needs_no_right_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    download(closed_port(), path, md5=MD5)
    assert list(tmp_path.iterdir()) == [path]


def test_a_connection_that_breaks_off_is_taken_up_at_the_same_byte(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_000_000, 500_001]
    download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.asked == [("a.bin", None), ("a.bin", "bytes=1000000-"), ("a.bin", "bytes=1500001-")]
    assert server.sent == len(CONTENT)


def test_a_later_attempt_asks_for_the_rest_alone(server: Server, tmp_path: Path) -> None:
    # The second connection adds no bytes, so the first attempt ends.
    server.cuts = [1_000_000, 0]
    with pytest.raises(UserError, match="the connection closed after 1000000 of 3000000 bytes"):
        download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert visible(tmp_path) == ["a.bin.part"]
    download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.sent == len(CONTENT)
    assert visible(tmp_path) == ["a.bin"]


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.cuts, server.ranges = [1_000_000], False
    download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.sent == 1_000_000 + len(CONTENT)


def test_a_page_in_place_of_the_rest_does_not_cost_what_has_arrived(server: Server, tmp_path: Path) -> None:
    """Some networks, as in hotels, answer every request with a login page."""
    path, part = tmp_path / "a.bin", tmp_path / "a.bin.part"
    part.write_bytes(CONTENT[:1_000_000])
    server.files["a.bin"], server.ranges = b"<html>" * 1000, False
    with pytest.raises(UserError, match="the server sent 6000 bytes in place of the rest"):
        download(server.url + "a.bin", path, md5=MD5)
    assert visible(tmp_path) == ["a.bin.part"]
    assert part.read_bytes() == CONTENT[:1_000_000]
    server.files["a.bin"], server.ranges, server.sent = CONTENT, True, 0
    download(server.url + "a.bin", path, md5=MD5)
    assert path.read_bytes() == CONTENT
    assert server.sent == 2_000_000


def test_a_server_without_ranges_that_breaks_off_earlier_costs_nothing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1_000_000])
    server.cuts, server.ranges = [500_000], False
    with pytest.raises(UserError, match="the connection closed after 500000 of 3000000 bytes"):
        download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1_000_000]
    server.cuts = [1_500_000]
    download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert visible(tmp_path) == ["a.bin"]


def test_a_silent_server_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    server.seconds_per_block = 0.5
    with pytest.raises(UserError, match=r"a\.bin could not be fetched: \S+: timed out; run `robustfeatures fetch`"):
        download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with pytest.raises(UserError) as caught:
        download(server.url + "a.bin", path, md5="0" * 32)
    assert str(caught.value) == (
        f"a.bin could not be fetched: {server.url}a.bin: the file has the MD5 {MD5}, not the published {'0' * 32}; "
        f"run it again, or put the file at {path}"
    )
    assert visible(tmp_path) == []


def test_the_beginning_of_another_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"<html>" * 1000)
    download(server.url + "a.bin", tmp_path / "a.bin", sha256=SHA256)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.asked == [("a.bin", "bytes=6000-"), ("a.bin", None)]


def test_a_whole_file_that_was_not_yet_renamed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    download(server.url + "a.bin", tmp_path / "a.bin", sha256=SHA256)
    assert server.sent == 0
    assert visible(tmp_path) == ["a.bin"]


def test_a_damaged_file_is_replaced(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT[:-1])
    download(server.url + "a.bin", path, md5=MD5)
    assert path.read_bytes() == CONTENT


def no_names(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def test_offline_is_one_line_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, path = closed_port() + "a.bin", tmp_path / "a.bin"
    with pytest.raises(UserError) as caught:
        download(address, path, md5=MD5)
    assert str(caught.value) == (
        f"a.bin could not be fetched: {address}: Connection refused; "
        f"run `robustfeatures fetch` on a machine with internet, or put the file at {path}"
    )
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    with pytest.raises(UserError, match=r": https://x\.org/a\.bin: Temporary failure in name resolution; run `robust"):
        download("https://x.org/a.bin", path, md5=MD5)


def test_a_damaged_file_put_there_by_hand_is_told_of(tmp_path: Path) -> None:
    address, path = closed_port() + "a.bin", tmp_path / "a.bin"
    path.write_bytes(b"half")
    with pytest.raises(UserError) as caught:
        download(address, path, md5=MD5)
    found = hashlib.md5(b"half", usedforsecurity=False).hexdigest()
    assert str(caught.value) == (
        f"a.bin could not be fetched: {address}: Connection refused; run `robustfeatures fetch` on a machine with "
        f"internet, or put the file at {path}; the file at {path} has the MD5 {found}, not the published {MD5}"
    )
    assert path.read_bytes() == b"half"


def test_mirrors_are_tried_in_order(server: Server, tmp_path: Path) -> None:
    server.files["damaged.bin"] = CONTENT[:-1] + b"?"
    names = ("missing.bin", "damaged.bin", "a.bin", "never.bin")
    mirrors = (closed_port(), *(server.url + name for name in names))
    download(mirrors, tmp_path / "a.bin", md5=MD5)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [name for name, _ in server.asked] == ["missing.bin", "damaged.bin", "a.bin"]
    with pytest.raises(UserError, match=r"missing\.bin: the server answered 404 .*damaged\.bin: the file has the MD5"):
        download(mirrors[:3], tmp_path / "b.bin", md5=MD5)


SCRIPT = """
import sys
from pathlib import Path
from robustfeatures.data.download import download
download(sys.argv[1], Path(sys.argv[2]), md5=sys.argv[3])
"""


def in_a_process(server: Server, path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, server.url + "a.bin", str(path), MD5])


def test_of_two_processes_one_downloads(server: Server, tmp_path: Path) -> None:
    server.seconds_per_block = 0.03
    path = tmp_path / "a.bin"
    processes = [in_a_process(server, path) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_what_a_killed_process_left_is_taken_up(server: Server, tmp_path: Path) -> None:
    server.seconds_per_block = 0.03
    path, part = tmp_path / "a.bin", tmp_path / "a.bin.part"
    killed = in_a_process(server, path)
    waited = time.monotonic()
    while not (part.exists() and part.stat().st_size > 500_000):
        assert time.monotonic() - waited < 60
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    kept = part.stat().st_size
    server.seconds_per_block = 0.0
    began = time.monotonic()
    download(server.url + "a.bin", path, md5=MD5)
    # Nobody waits for the lock of a dead process on this machine.
    assert time.monotonic() - began < 20
    assert path.read_bytes() == CONTENT
    assert server.asked == [("a.bin", None), ("a.bin", f"bytes={kept}-")]


def test_a_failure_of_the_disk_is_none_of_the_network(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").mkdir()
    with pytest.raises(IsADirectoryError):
        download(server.url + "a.bin", tmp_path / "a.bin", md5=MD5)


@pytest.mark.parametrize("checksums", [{}, {"md5": MD5, "sha256": SHA256}])
def test_nothing_is_downloaded_unchecked(tmp_path: Path, checksums: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="checked by one checksum"):
        download(closed_port(), tmp_path / "a.bin", **checksums)


def test_the_checksum_in_words(tmp_path: Path) -> None:
    assert Download(("x",), tmp_path, md5=MD5).checksum == f"MD5 {MD5}"
    assert Download(("x",), tmp_path, sha256=SHA256).checksum == f"SHA-256 {SHA256}"


def test_published_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(train: int, test: int) -> None:
        size = Size({"train": train, "test": test}, (1, 2, 2))
        monkeypatch.setitem(SOURCES, "known", SourceEntry(name="known", loader="known:load", size=size))

    raw = RawData(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int64), ("a",))
    publish(train=3, test=3)
    check_counts({"train": raw, "test": raw}, "known")
    publish(train=3, test=4)
    with pytest.raises(UserError, match=r"^data\.source: known: the split test has 3 images, not the published 4$"):
        check_counts({"train": raw, "test": raw}, "known")
