"""Refuses files that the configuration of a client names, unless they are in the directory of its project.

A function opens them with nfagent's rights: a tenant could read any key, and append log lines to any file. Kinds
declare the places where their configurations name files, such as ``listeners[].tls.key``.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nfagent.errors import InvalidError

_STEP = re.compile(r"[^.\[\]]+|\[\]")
_SOCKET = "unix:"


def check_files(
    places: Iterable[str], config: dict[str, Any], before: dict[str, Any], directory: Path | None, project: str
) -> None:
    """Refuse a configuration that names files elsewhere.

    Args:
        places: where configurations of the kind name files.
        config: to check.
        before: the present configuration: what it names already may stay, as an administrator put it there.
        directory: the directory with a directory for each project; None: there is none.
        project: of the instance.

    Raises:
        InvalidError: a file elsewhere; with its place, and what is expected.
    """
    for place in places:
        known = {text for _, text in _named(before, place)}
        for found, text in _named(config, place):
            if text not in known:
                _check(found, text, directory, project)


def _check(place: str, text: str, directory: Path | None, project: str) -> None:
    expected = "only administrators may name files"
    if directory is not None:
        own = directory / project
        if own.parent == directory and project not in (".", "..") and _is_below(Path(text.removeprefix(_SOCKET)), own):
            return
        expected = f"expected a file below {own}, or an administrator's request"
    detail = f"{place}: {text!r} names a file, which the function would open with nfagent's rights; {expected}"
    raise InvalidError("file-refused", detail, f"config.{place}")


def _is_below(file: Path, directory: Path) -> bool:
    """Tell whether a file is below a directory, on this machine also after its symbolic links are followed."""
    if not file.is_absolute() or ".." in file.parts or directory not in file.parents:
        return False
    try:
        return directory.resolve() in file.resolve().parents
    except (OSError, ValueError, RuntimeError):  # a circle of links, or a NUL
        return False


def _named(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the texts at a place, each with its own place, such as ``listeners[0].tls.key``."""
    yield from _walk(value, _STEP.findall(place), "")


def _walk(value: Any, steps: list[str], at: str) -> Iterator[tuple[str, str]]:
    if not steps:
        if isinstance(value, str):
            yield at, value
        return
    step, *rest = steps
    if step == "[]":
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _walk(each, rest, f"{at}[{index}]")
    elif isinstance(value, dict) and step in value:
        yield from _walk(value[step], rest, f"{at}.{step}" if at else step)
