"""What processes write: bounded while they run, and removed with their instance.

Processes append to their logs themselves, which needs no other process. Hence a log is cut from time to time: its end
is kept beside it, as ``KEY.log.1``.
"""

import os
from pathlib import Path

MOST = 4 << 20
"""Bytes; a log that has more when it is looked at is cut."""

KEPT = 256 << 10
"""Bytes of the end that are kept."""


def tail(path: Path, size: int) -> bytes:
    """The last bytes of a file, whatever its length.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size)


def cut(path: Path) -> None:
    """Empty a log that has grown too long; the process goes on appending to it.

    Raises:
        OSError: it cannot be.
    """
    if path.stat().st_size > MOST:
        older = path.with_name(f"{path.name}.1")
        older.write_bytes(tail(path, KEPT))
        older.chmod(0o600)
        os.truncate(path, 0)


def key_of(name: str) -> str:
    """Whose log a file is."""
    return name.removesuffix(".1").removesuffix(".log")
