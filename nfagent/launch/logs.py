"""Processes' logs: bounded while they run, and removed with their instance.

Processes append to their logs directly, which needs no further process. Hence a log is truncated from time to time, and
its end is kept beside it as ``KEY.log.1``.
"""

import os
from pathlib import Path

MOST = 4 << 20
"""Bytes above which a log is truncated when checked."""

KEPT = 256 << 10
"""Bytes of the end to keep."""


def tail(path: Path, size: int) -> bytes:
    """Return the last bytes of a file, whatever its length.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size)


def cut(path: Path) -> None:
    """Empty a log that has grown too long; the process keeps appending to it.

    Raises:
        OSError: it cannot be truncated.
    """
    if path.stat().st_size > MOST:
        older = path.with_name(f"{path.name}.1")
        older.write_bytes(tail(path, KEPT))
        older.chmod(0o600)
        os.truncate(path, 0)


def key_of(name: str) -> str:
    """Return the key of a log file."""
    return name.removesuffix(".1").removesuffix(".log")
