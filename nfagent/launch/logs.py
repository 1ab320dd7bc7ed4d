"""Processes' logs: bounded while they run, and removed with their instance.

Processes append to their logs directly, which needs no further process. Hence a log is truncated from time to time, and
its end is kept beside it as ``KEY.log.1``. People find it by the function's name, below ``by-name``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

MOST = 4 << 20
"""Bytes above which a log is truncated when checked."""

KEPT = 256 << 10
"""Bytes of the end to keep."""

NEWER, OLDER = ".log", ".log.1"
"""Ends of the names of a process's log, and of what was before it: its predecessor's output, or what was cut off."""

_NAMES = "by-name"


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


def name(directory: Path, keys: Mapping[tuple[str, str], str]) -> None:
    """Make the links ``by-name/PROJECT/NAME.log``, and ``.log.1``, to the logs of these keys, and remove all others.

    Raises:
        OSError: a link cannot be made or removed.
    """
    wanted = {
        directory / _NAMES / _safe(project) / f"{function}{suffix}": f"../../{key}{suffix}"
        for (project, function), key in keys.items()
        for suffix in (NEWER, OLDER)
    }
    for link in (directory / _NAMES).glob("*/*"):
        if link not in wanted or str(link.readlink()) != wanted[link]:
            link.unlink()
    for link, target in wanted.items():
        if not link.is_symlink():
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.symlink_to(target)
    for project in (directory / _NAMES).glob("*"):
        if not any(project.iterdir()):
            project.rmdir()


def _safe(project: str) -> str:
    """Spell a project, which identity services may name anything, as the name of a directory."""
    return quote(project, safe=" ").replace(".", "%2E") if project.startswith(".") else quote(project, safe=" ")


def key_of(name: str) -> str:
    """Return the key of a log file."""
    return name.removesuffix(".1").removesuffix(".log")
