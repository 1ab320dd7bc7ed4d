"""The file of tokens: one per line, ``PROJECT ROLE TOKEN [NAME]``; ``#`` starts a comment.

It is read again after every change, so that removing a token revokes it at once.
"""

import hashlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nfagent.clients import ROLES, Client, Role
from server.errors import ConfigFaultError

_log = logging.getLogger(__name__)

_SHORTEST = 16
_ROLES: dict[str, Role] = {role: role for role in ROLES}
_FORM = f"PROJECT {'|'.join(ROLES)} TOKEN [NAME]"


@dataclass(frozen=True)
class Entry:
    """A token and its owner."""

    digest: bytes
    client: Client


class Tokens:
    """Reads the file.

    Thread safety: any thread may ask.

    Args:
        path: path of the file; None: no file.

    Raises:
        ConfigFaultError: the file cannot be used; names the line.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: object = None
        self._entries: list[Entry] = []
        if path is not None:
            self._seen, self._entries = _mark(path), list(_strictly(path))

    def entries(self) -> list[Entry]:
        """Return the tokens now in the file, without invalid lines; none if others can read the file."""
        if self._path is None:
            return []
        with self._lock:
            mark = _mark(self._path)
            if mark != self._seen:
                self._entries = list(_tolerantly(self._path))
                self._seen = mark
                _log.info("%s: read again; it has %d tokens", self._path, len(self._entries))
            return self._entries


def digest(token: str) -> bytes:
    """Return a digest for comparing tokens, all of one length."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _mark(path: Path) -> object:
    """Return a value that differs after every change of the file; None: the file does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _strictly(path: Path) -> Iterator[Entry]:
    for read in _read(path):
        if isinstance(read, ConfigFaultError):
            raise read
        yield read


def _tolerantly(path: Path) -> Iterator[Entry]:
    for read in _read(path):
        if isinstance(read, ConfigFaultError):
            _log.error("%s; left out", read)
        else:
            yield read


def _read(path: Path) -> Iterator[Entry | ConfigFaultError]:
    """Yield the entries, and errors for invalid lines."""
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        yield ConfigFaultError(path, None, "", f"the tokens cannot be read: {error}")
        return
    if mode & 0o077:
        yield ConfigFaultError(path, None, "", f"others can read the tokens (mode {mode & 0o777:o}); chmod 600 {path}")
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        role = _ROLES.get(words[1]) if len(words) in (3, 4) else None
        if role is None:
            yield ConfigFaultError(path, number, "", f"expected {_FORM}")
            continue
        project, _, token, *name = words
        if len(token) < _SHORTEST:
            yield ConfigFaultError(
                path, number, "", f"a token of {len(token)} characters; at least {_SHORTEST} are needed"
            )
            continue
        shown = digest(token)
        yield Entry(shown, Client.of(role, project, name[0] if name else f"token {shown.hex()[:8]}"))
