"""A remote: a folder, a server or a bucket with payloads that several people share.

`<key>/<sha256>` is one file of a payload, and `<key>/manifest.json` comes last, so that a payload with a manifest is
complete. A name that says the content is never written twice with different bytes, whoever pushes at the same time.
`.accepted/` has acceptances, and `.format.json` marks the place as a remote.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from robustfeatures.errors import UserError, suggest
from robustfeatures.files import encode_json
from robustfeatures.pipeline.plan.canonical import KEY
from robustfeatures.pipeline.store.acceptances import FOLDER as ACCEPTANCES
from robustfeatures.pipeline.store.format import FILE as FORMAT_FILE
from robustfeatures.pipeline.store.format import FORMAT, OBJECT, check_kind, check_own_folder, make_marker
from robustfeatures.pipeline.store.sealed import MANIFEST, parse_sealed

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# Each scheme with the extra of this package that it needs.
EXTRAS = {"file": "", "sftp": "ssh", "s3": "s3"}
# Seconds until a server that does not answer counts as unreachable.
PATIENCE = 20
PUSH_AGAIN = "push again from a store that has it"
# Folders that a store has and a remote has not.
STORE_FOLDERS = {".partial", ".checkouts"}
CHUNK_BYTES = 1 << 22

# Takes the number of bytes that were moved since the last call.
Moved = Callable[[int], None]


class DamagedError(UserError):
    """An object of a remote is not as it was pushed."""


def check_address(address: str, where: str) -> None:
    """Check the address of a remote; `where` names the field or argument with it.

    Raises:
        UserError: the scheme is unknown, or the address holds credentials, which would end up in logs.
    """
    scheme, place = _split(address)
    if scheme not in EXTRAS:
        raise UserError(f"{where}: unknown scheme {scheme!r}{suggest(scheme, EXTRAS)}")
    try:
        parts = urlsplit(f"//{place}" if scheme != "file" else "")
        # Read here, because only then a wrong port is an error.
        _ = parts.port
    except ValueError:
        # The error may quote a password with a slash, whose first part stands in the place of the port.
        raise UserError(f"{where}: the host or the port is wrong; write sftp://user@host:22/folder") from None
    if scheme != "file" and "@" in parts.path:
        raise UserError(f"{where}: holds a second @ or a password with a slash, where the folder should stand")
    if scheme == "s3" and (":" in parts.netloc or "@" in parts.netloc):
        raise UserError(f"{where}: holds credentials; give them in ~/.aws/credentials or AWS_* variables")
    if parts.password is not None or parts.query or parts.fragment:
        raise UserError(f"{where}: holds a password or options; use a key of ~/.ssh or an agent, and ~/.ssh/config")
    if not place or (scheme != "file" and not parts.netloc):
        raise UserError(f"{where}: names no place; write a folder, sftp://user@host/folder or s3://bucket/folder")


@dataclass(frozen=True)
class Remote:
    """An open remote. `address` is for messages and holds no credentials."""

    address: str
    files: AbstractFileSystem
    root: str
    # Whether an object appears only when all of it is there. Elsewhere it is renamed into its place.
    has_atomic_writes: bool

    @classmethod
    def open(cls, address: str, where: str = "remote") -> Remote:
        """Connect to a remote; `where` names the field or argument with its address.

        Raises:
            UserError: the address is wrong, a package is missing, or the place cannot be reached.
        """
        check_address(address, where)
        scheme, place = _split(address)
        address = address.rstrip("/")
        try:
            with _explain(address):
                files, root = _connect(scheme, place)
        except ImportError as error:
            raise UserError(f"{where}: {scheme}:// needs `pip install 'robustfeatures[{EXTRAS[scheme]}]'`") from error
        return cls(address, files, root.rstrip("/"), scheme == "s3")

    def check(self) -> None:
        """Check that this is a remote.

        Raises:
            UserError: it is not, but maybe a store; another version wrote it; or it cannot be reached.
        """
        content = self.read(FORMAT_FILE)
        if content is None:
            raise UserError(f"{self.address}: there is no remote here; `robustfeatures push` makes one")
        try:
            marker = json.loads(content)
            found = marker["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.address}/{FORMAT_FILE}: damaged; push again") from error
        if found != FORMAT:
            raise UserError(f"{self.address}: of another version of this package (format {found}, not {FORMAT})")
        check_kind(marker, "remote", self.address, self._is_used_as_store)

    def create(self) -> None:
        """Make this place a remote, unless it is one.

        Raises:
            UserError: as `check`, it holds something else, or it may not be written.
        """
        if self.read(FORMAT_FILE) is None:
            check_kind({}, "remote", self.address, self._is_used_as_store)
            # A bucket may list an empty folder as its own content. Another push may have begun at the same time.
            own = PurePosixPath(self.root).name
            names = [name for name in self.sizes("") if name != own and not KEY.fullmatch(name)]
            check_own_folder("remote", self.address, names)
            self.write(FORMAT_FILE, encode_json(make_marker("remote")))
        self.check()

    def _is_used_as_store(self) -> bool:
        """Whether jobs have worked here, or a study was planned with this as its store."""
        return not self.sizes("").keys().isdisjoint(STORE_FOLDERS)

    def is_folder(self, folder: Path) -> bool:
        """Whether this remote is a folder of this machine, and this folder."""
        return _split(self.address)[0] == "file" and Path(self.root).resolve() == folder.resolve()

    def keys(self) -> set[str]:
        """The keys under which something lies. Not all of them need be complete."""
        return {name for name in self.sizes("") if KEY.fullmatch(name)}

    def sizes(self, folder: str) -> dict[str, int]:
        """The names in a folder of the remote, with the sizes of files; empty if there is no such folder."""
        with _explain(self.address):
            try:
                found = self.files.ls(self._place(folder), detail=True)
            except FileNotFoundError:
                return {}
        return {PurePosixPath(one["name"]).name: one["size"] or 0 for one in found}

    def manifest(self, key: str) -> dict[str, Any] | None:
        """The manifest of a complete payload; None if there is none.

        Raises:
            DamagedError: it is not as it was pushed.
            UserError: the remote cannot be read.
        """
        name = f"{key}/{MANIFEST}"
        content = self.read(name)
        if content is None:
            return None
        try:
            manifest = parse_sealed(content, name)
            if manifest["key"] != key or not isinstance(manifest["content"], str):
                raise ValueError
            for file, facts in manifest["files"].items():
                _check_file(file, facts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{self.address}/{name}: damaged; {PUSH_AGAIN}") from error
        return manifest

    def acceptances(self, known: Set[str]) -> Iterator[tuple[str, bytes]]:
        """The names and bytes of all undamaged acceptances but those with a known name."""
        for name in self.sizes(ACCEPTANCES).keys() - known:
            content = self.read(f"{ACCEPTANCES}/{name}")
            with suppress(ValueError):
                if content is not None and re.fullmatch(r"\w+-[0-9a-f]+\.json", name):
                    parse_sealed(content, name)
                    yield name, content

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object; None if it is not there.

        Raises:
            UserError: it cannot be read.
        """
        with _explain(self.address):
            try:
                return bytes(self.files.cat_file(self._place(name)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small object.

        Raises:
            UserError: it cannot be written.
        """
        with self._placing(name) as place:
            self.files.pipe_file(place, content)

    def put(self, path: Path, name: str, moved: Moved) -> None:
        """Write a file as an object.

        Raises:
            UserError: it cannot be written.
        """
        from fsspec.callbacks import Callback

        class Counter(Callback):  # type: ignore[misc]  # fsspec has no types
            seen = 0

            def call(self, *_: Any, **__: Any) -> None:
                moved(self.value - self.seen)
                self.seen = self.value

        counter = Counter()
        with self._placing(name) as place:
            self.files.put_file(str(path), place, callback=counter)
        moved(path.stat().st_size - counter.seen)

    def get(self, name: str, sha256: str, path: Path, moved: Moved) -> None:
        """Write an object as a file, which appears only when all of it is there with this SHA-256.

        Raises:
            DamagedError: the object is missing or not as it was pushed.
            UserError: it cannot be read.
            OSError: the file cannot be written.
        """
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        hasher = hashlib.sha256()
        try:
            with temporary.open("wb") as file:
                for chunk in self._chunks(name):
                    file.write(chunk)
                    hasher.update(chunk)
                    moved(len(chunk))
            if hasher.hexdigest() != sha256:
                # `push` compares sizes alone, so that it need not read what is there.
                raise DamagedError(f"{self.address}/{name}: damaged; remove this file there, then {PUSH_AGAIN}")
            temporary.replace(path)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            temporary.unlink(missing_ok=True)

    def _chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of an object. Only errors of the remote are named after it, not those of who writes the bytes."""
        with _explain(self.address):
            try:
                source = self.files.open(self._place(name), "rb")
            except FileNotFoundError as error:
                raise DamagedError(f"{self.address}/{name}: missing; {PUSH_AGAIN}") from error
        try:
            while True:
                with _explain(self.address):
                    chunk = source.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
        finally:
            source.close()

    def _place(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def _placing(self, name: str) -> Iterator[str]:
        """Where to write an object, so that nobody sees half of it."""
        place = self._place(name)
        with _explain(self.address):
            if self.has_atomic_writes:
                yield place
                return
            folder, _, last = place.rpartition("/")
            self.files.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{last}.{secrets.token_hex(4)}"
            try:
                yield temporary
                self.files.mv(temporary, place)
            except BaseException:
                with suppress(Exception):
                    self.files.rm_file(temporary)
                raise


def _split(address: str) -> tuple[str, str]:
    scheme, mark, place = address.partition("://")
    return (scheme, place) if mark else ("file", address)


def _connect(scheme: str, place: str) -> tuple[AbstractFileSystem, str]:
    """The file system of an address, and the folder there."""
    if scheme == "s3":
        from s3fs import S3FileSystem

        limits = {"connect_timeout": PATIENCE, "read_timeout": 3 * PATIENCE, "retries": {"max_attempts": 3}}
        return S3FileSystem(use_listings_cache=False, skip_instance_cache=True, config_kwargs=limits), place
    if scheme == "sftp":
        from sshfs import SSHFileSystem

        parts = urlsplit(f"//{place}")
        user = {"username": parts.username} if parts.username else {}
        port = {"port": parts.port} if parts.port else {}
        # An empty tuple stands for ~/.ssh/known_hosts. By default sshfs trusts every host.
        options = {**user, **port, "known_hosts": (), "connect_timeout": PATIENCE, "skip_instance_cache": True}
        return SSHFileSystem(parts.hostname, **options), parts.path or "/"
    from fsspec.implementations.local import LocalFileSystem

    return LocalFileSystem(), str(Path(place).expanduser().absolute())


def _check_file(name: str, facts: Mapping[str, Any]) -> None:
    """Check an entry of a manifest that others wrote: it must name a file inside the payload."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and str(path) == name and "\\" not in name
    whole = isinstance(facts["size"], int) and OBJECT.fullmatch(facts["sha256"])
    if not inside or not whole or name in (".", MANIFEST):
        raise ValueError(name)


@contextmanager
def _explain(address: str) -> Iterator[None]:
    """Turn any error of a remote into a UserError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{address}: no such folder or bucket") from error
    except (UserError, ImportError, MemoryError):
        raise
    except Exception as error:  # each library of a file system has its own kinds
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{address}: {' '.join(reason.split()) or type(error).__name__}") from error
