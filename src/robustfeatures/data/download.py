"""Downloads of published files: resumed after a broken connection, checked, and moved into place when complete."""

from __future__ import annotations

import hashlib
import http.client
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import SoftFileLease
from tqdm import tqdm

from robustfeatures.data.registry import find_source
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.raw import RawData

# Some servers refuse urllib's own name.
AGENT = "robustfeatures"
# Seconds without data after which a connection fails.
TIMEOUT = 30.0
# Seconds between a broken connection and the next one.
PAUSE = 1.0
BLOCK_BYTES = 1 << 18
# Seconds without a sign of life after which jobs on other machines ignore the lock of a job.
LEASE_SECONDS = 120.0
NOTHING_LEFT_TO_SEND = 416
PARTIAL_CONTENT = 206

NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


@dataclass(frozen=True)
class Download:
    """A published file: its mirrors, its path, and its published checksum (`md5` or `sha256`)."""

    urls: tuple[str, ...]
    path: Path
    md5: str | None = None
    sha256: str | None = None

    def fetch(self) -> None:
        """Download the file as `download` does."""
        download(self.urls, self.path, md5=self.md5, sha256=self.sha256)

    @property
    def checksum(self) -> str:
        """The checksum for people: 'MD5 <hexadecimal>' or 'SHA-256 <hexadecimal>'."""
        return _Checksum.of(self.md5, self.sha256).text


@dataclass(frozen=True)
class _Checksum:
    algorithm: str
    value: str

    @classmethod
    def of(cls, md5: str | None, sha256: str | None) -> _Checksum:
        if md5 is not None and sha256 is None:
            return cls("MD5", md5)
        if sha256 is not None and md5 is None:
            return cls("SHA-256", sha256)
        raise ValueError("a download is checked by one checksum: md5 or sha256")

    @property
    def text(self) -> str:
        return f"{self.algorithm} {self.value}"

    def compute(self, path: Path) -> str:
        def new_hash() -> hashlib._Hash:
            return hashlib.sha256() if self.algorithm == "SHA-256" else hashlib.md5(usedforsecurity=False)

        with path.open("rb") as file:
            return hashlib.file_digest(file, new_hash).hexdigest()

    def is_met_by(self, path: Path) -> bool:
        return path.is_file() and self.compute(path) == self.value

    def describe_difference(self, found: str) -> str:
        """The part of a message about a file with the checksum `found`."""
        return f"has the {self.algorithm} {found}, not the published {self.value}"


class _WrongChecksumError(Exception):
    """The file is complete but is not the published one."""


def download(urls: str | Sequence[str], path: Path, *, md5: str | None = None, sha256: str | None = None) -> None:
    """Download a file to `path`, unless it exists there; `urls` are its mirrors, tried in order.

    Received bytes stay in `<path>.part`. The next attempt, in this process or a later one, requests only the rest. If
    several jobs need the same file, one downloads it and the others wait.

    Raises:
        UserError: no mirror can be reached, or none has the file with the given checksum.
        ValueError: no checksum is given, or both are.
    """
    checksum = _Checksum.of(md5, sha256)
    # Check before locking: the file may lie in a folder that this job cannot write to.
    if checksum.is_met_by(path):
        return
    with hold_lock(path):
        if not checksum.is_met_by(path):
            _fetch([urls] if isinstance(urls, str) else urls, path, checksum)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock on `path`, a file or a folder, against all other jobs; wait for another holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with SoftFileLease(path.with_name(f".{path.name}.lock"), lease_duration=LEASE_SECONDS):
        yield


def check_counts(splits: Mapping[str, RawData], source: str) -> None:
    """Compare the number of images of each split with the published number in the source's entry.

    Raises:
        UserError: a split has more or fewer images.
    """
    for split, count in find_source(source).published_images.items():
        found = len(splits[split].labels)
        if found != count:
            raise UserError(f"data.source: {source}: the split {split} has {found} images, not the published {count}")


def _fetch(urls: Sequence[str], path: Path, checksum: _Checksum) -> None:
    part = path.with_name(f"{path.name}.part")
    failures = []
    reached = False
    for url in urls:
        try:
            _fetch_from(url, part, checksum)
        except NETWORK_ERRORS as error:
            failures.append(f"{url}: {_reason(error)}")
        except _WrongChecksumError as error:
            failures.append(f"{url}: {error}")
            reached = True
        else:
            part.replace(path)
            return
        logging.getLogger(__name__).warning("%s", failures[-1])
    advice = "run it again, " if reached else "run `robustfeatures fetch` on a machine with internet, "
    damaged = f"; the file at {path} {checksum.describe_difference(checksum.compute(path))}" if path.is_file() else ""
    raise UserError(
        f"{path.name} could not be fetched: {'; '.join(failures)}; {advice}or put the file at {path}{damaged}"
    )


def _fetch_from(url: str, part: Path, checksum: _Checksum) -> None:
    """Download the whole file to `part`. If the bytes of an earlier attempt are of another file, begin again."""
    attempts = 2 if part.exists() else 1
    for _ in range(attempts):
        _fetch_rest(url, part)
        found = checksum.compute(part)
        if found == checksum.value:
            return
        part.unlink()
    raise _WrongChecksumError(f"the file {checksum.describe_difference(found)}")


def _fetch_rest(url: str, part: Path) -> None:
    """Request the rest of the file until it is complete; give up when a connection adds no bytes."""
    farthest = _size(part)
    while True:
        try:
            _request_rest(url, part)
            return
        except NETWORK_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError) or _size(part) <= farthest:
                raise
            farthest = _size(part)
            logging.getLogger(__name__).warning("%s: %s; resuming at byte %d", url, _reason(error), farthest)
            time.sleep(PAUSE)


def _request_rest(url: str, part: Path) -> None:
    """Send one request for the bytes that `part` lacks, and append them.

    Some servers send the whole file instead. It replaces `part`, unless it is shorter.
    """
    have = _size(part)
    # "identity": a byte position in a compressed answer is not a position in the file.
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    logging.getLogger(__name__).info("fetching %s from byte %d", url, have)
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the addresses are constants of this package)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if have and error.code == NOTHING_LEFT_TO_SEND:
            # All bytes are there already, or they are of another file. The checksum shows which.
            return
        raise
    with response:
        if have and response.status != PARTIAL_CONTENT:
            _replace(response, part)
        else:
            _write(response, part, have)


def _write(response: http.client.HTTPResponse, file: Path, begin: int) -> None:
    """Append the answer to a file that has `begin` bytes already; 0 begins the file again."""
    total = None if response.length is None else begin + response.length
    with (
        file.open("ab" if begin else "wb") as opened,
        tqdm(
            desc=file.stem, initial=begin, total=total, unit="B", unit_scale=True, leave=False, disable=None
        ) as progress,
    ):
        while block := response.read(BLOCK_BYTES):
            opened.write(block)
            progress.update(len(block))
    if total is not None and _size(file) < total:
        raise ConnectionError(f"the connection closed after {_size(file)} of {total} bytes")


def _replace(response: http.client.HTTPResponse, part: Path) -> None:
    """Replace `part` by the answer, unless the answer is shorter, such as the login page of a network."""
    have, replacement = _size(part), part.with_name(f"{part.name}.anew")
    try:
        _write(response, replacement, 0)
    finally:
        received = _size(replacement)
        if received < have:
            replacement.unlink(missing_ok=True)
        else:
            replacement.replace(part)
    if received < have:
        raise ConnectionError(f"the server sent {received} bytes in place of the rest of {part.name}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(error).__name__
