"""Downloads of published files: taken up where they broke off, checked, and at their place whole or not at all."""

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

# Some servers turn away urllib's own name.
AGENT = "robustfeatures"
# A server that sends nothing for this many seconds is taken for dead.
TIMEOUT = 30.0
# Seconds before a connection that broke off is made again.
PAUSE = 1.0
BLOCK_BYTES = 1 << 18
# A job that has not been heard of for this many seconds is taken for dead by jobs on other machines.
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
    """A published file: its addresses, where it belongs, and its published checksum (one of the two)."""

    urls: tuple[str, ...]
    path: Path
    md5: str | None = None
    sha256: str | None = None

    def fetch(self) -> None:
        """See `download`."""
        download(self.urls, self.path, md5=self.md5, sha256=self.sha256)

    @property
    def checksum(self) -> str:
        """How the file is checked, for people: 'MD5 <hexadecimal>' or 'SHA-256 <hexadecimal>'."""
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

    def found(self, path: Path) -> str:
        def fresh() -> hashlib._Hash:
            return hashlib.sha256() if self.algorithm == "SHA-256" else hashlib.md5(usedforsecurity=False)

        with path.open("rb") as file:
            return hashlib.file_digest(file, fresh).hexdigest()

    def fits(self, path: Path) -> bool:
        return path.is_file() and self.found(path) == self.value

    def differing(self, found: str) -> str:
        """What to say of a file with another checksum."""
        return f"has the {self.algorithm} {found}, not the published {self.value}"


class _WrongChecksumError(Exception):
    """A whole file came that is not the published one."""


def download(urls: str | Sequence[str], path: Path, *, md5: str | None = None, sha256: str | None = None) -> None:
    """Bring a file to `path`, unless it is there already; `urls` are mirrors of it, tried in order.

    What has arrived is kept in `<path>.part`, so that the next attempt, in this process or a later one, asks for the
    rest alone. Of several jobs that want the same file one downloads it, and the others wait.

    Raises:
        UserError: no mirror could be reached, or none has the file with the given checksum.
        ValueError: not exactly one checksum is given.
    """
    checksum = _Checksum.of(md5, sha256)
    # Without the lock first: the file may lie in a folder that this job can only read.
    if checksum.fits(path):
        return
    with hold_lock(path):
        if not checksum.fits(path):
            _bring([urls] if isinstance(urls, str) else urls, path, checksum)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Sole right among all jobs to write at `path`, a file or a folder; waits for another holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with SoftFileLease(path.with_name(f".{path.name}.lock"), lease_duration=LEASE_SECONDS):
        yield


def check_counts(splits: Mapping[str, RawData], source: str) -> None:
    """Compare the number of images of each split with the published one, which the source's entry holds.

    Raises:
        UserError: a split has more or fewer images.
    """
    for split, count in find_source(source).published_images.items():
        found = len(splits[split].labels)
        if found != count:
            raise UserError(f"data.source: {source}: the split {split} has {found} images, not the published {count}")


def _bring(urls: Sequence[str], path: Path, checksum: _Checksum) -> None:
    part = path.with_name(f"{path.name}.part")
    failures = []
    reached = False
    for url in urls:
        try:
            _bring_from(url, part, checksum)
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
    damaged = f"; the file at {path} {checksum.differing(checksum.found(path))}" if path.is_file() else ""
    raise UserError(
        f"{path.name} could not be fetched: {'; '.join(failures)}; {advice}or put the file at {path}{damaged}"
    )


def _bring_from(url: str, part: Path, checksum: _Checksum) -> None:
    """The whole file in `part`; what an earlier attempt left there is dropped if it turns out not to belong to it."""
    attempts = 2 if part.exists() else 1
    for _ in range(attempts):
        _receive(url, part)
        found = checksum.found(part)
        if found == checksum.value:
            return
        part.unlink()
    raise _WrongChecksumError(f"the file {checksum.differing(found)}")


def _receive(url: str, part: Path) -> None:
    """Ask for the rest of the file until it is all there, as long as every connection brings it further."""
    farthest = _size(part)
    while True:
        try:
            _transfer(url, part)
            return
        except NETWORK_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError) or _size(part) <= farthest:
                raise
            farthest = _size(part)
            logging.getLogger(__name__).warning("%s: %s; resuming at byte %d", url, _reason(error), farthest)
            time.sleep(PAUSE)


def _transfer(url: str, part: Path) -> None:
    """One request for what `part` lacks, appended to it; a server that always sends all makes it begin anew.

    What is there is not given up for less.
    """
    have = _size(part)
    # Compressed on its way, a file could not be resumed at a byte of its own.
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    logging.getLogger(__name__).info("fetching %s from byte %d", url, have)
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the addresses are constants of this package)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if have and error.code == NOTHING_LEFT_TO_SEND:
            # Stopped between the last byte and the renaming, or no part of this file: the checksum tells.
            return
        raise
    with response:
        if have and response.status != PARTIAL_CONTENT:
            _write_anew(response, part)
        else:
            _write(response, part, have)


def _write(response: http.client.HTTPResponse, file: Path, begin: int) -> None:
    """Append the answer to a file that holds the `begin` bytes before it."""
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


def _write_anew(response: http.client.HTTPResponse, part: Path) -> None:
    """The answer in place of `part`, unless it is the shorter one, as the page of a network that wants a login is."""
    have, anew = _size(part), part.with_name(f"{part.name}.anew")
    try:
        _write(response, anew, 0)
    finally:
        came = _size(anew)
        if came < have:
            anew.unlink(missing_ok=True)
        else:
            anew.replace(part)
    if came < have:
        raise ConnectionError(f"the server sent {came} bytes in place of the rest of {part.name}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(error).__name__
