"""Processes' logs: bounded while they run, and removed with their instance.

Processes append to their logs directly, which needs no further process. Hence a log is truncated from time to time, and
its end is kept beside it as ``KEY.log.1``.
"""

import os
from dataclasses import dataclass
from pathlib import Path

MOST = 4 << 20
"""Bytes above which a log is truncated when checked."""

KEPT = 256 << 10
"""Bytes of the end to keep."""


@dataclass(frozen=True)
class Position:
    """A place in a log: the file (its inode number) and the bytes before the place."""

    file: int
    offset: int


@dataclass(frozen=True)
class Part:
    """Output of a process, and the position behind it."""

    output: bytes
    end: Position


def part(path: Path, after: Position | None, most: int) -> Part:
    """Return at most ``most`` bytes of a log: behind a position, or else the newest.

    A log that another one has replaced, or that has been truncated, is read from its beginning.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        begin = first_byte(after, found.st_ino, found.st_size, most)
        file.seek(begin)
        output = file.read(most)
        return Part(output, Position(found.st_ino, begin + len(output)))


def first_byte(after: Position | None, file: int, size: int, most: int) -> int:
    """Return the offset of the next part of a log."""
    if after is None:
        return max(0, size - most)
    return after.offset if after.file == file and after.offset <= size else 0


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
