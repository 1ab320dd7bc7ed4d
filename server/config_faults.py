"""Parses TOML into pydantic models; faults found by tomllib and pydantic become a `ConfigFaultError`."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from server.errors import ConfigFaultError

KeyPath = Sequence[str | int]
"""Keys, and indices of arrays, from the top of a document; pydantic's ``loc`` is one."""

Model = TypeVar("Model", bound=BaseModel)

_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)$")
_KEY_ON_LINE = re.compile(r"""\s*\[*\s*([A-Za-z0-9_."'-]+)\s*[=\]]""")


def read_text(path: Path) -> str:
    """Read the text of a file.

    Raises:
        ConfigFaultError: it cannot be read.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigFaultError(path, None, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigFaultError(path, None, "", f"is not UTF-8 text: {error.reason}") from error


def parse_model(model: type[Model], text: str, path: Path) -> Model:
    """Parse a TOML text into a model.

    Raises:
        ConfigFaultError: it is not TOML, or violates the model's contract.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_fault(path, text, error) from error
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _first_fault(path, text, error) from error


def _syntax_fault(path: Path, text: str, error: tomllib.TOMLDecodeError) -> ConfigFaultError:
    """Return the fault of a text that is not TOML, such as one with a duplicate key."""
    problem = str(error)
    place = _AT_LINE.search(problem)
    if not place:  # "(at end of document)"
        return ConfigFaultError(path, max(1, len(text.splitlines())), "", f"is not TOML: {problem}")
    # tomllib notices some faults only after the line's end has been read
    line = int(place[1])
    source = text.splitlines()
    while line > 1 and (line > len(source) or not source[line - 1].strip()):
        line -= 1
    key = _KEY_ON_LINE.match(source[line - 1]) if source else None
    problem = _AT_LINE.sub("", problem)
    if problem.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate")):
        problem = f"is given twice ({problem})"
    else:
        problem = f"is not TOML: {problem}"
    return ConfigFaultError(path, line, key[1] if key else "", problem)


def _first_fault(path: Path, text: str, error: ValidationError) -> ConfigFaultError:
    """Return the first fault in the file; a missing key comes last, because it may only be misspelt."""
    faults = [
        (item["type"] == "missing", fault_at(path, text, item["loc"], _problem(dict(item)))) for item in error.errors()
    ]
    return min(faults, key=lambda fault: (fault[0], fault[1].line or 0))[1]


def fault_at(path: Path, text: str, where: KeyPath, problem: str) -> ConfigFaultError:
    """Return a fault of the key ``where``, on its line or, if it is missing, on that of its table."""
    return ConfigFaultError(path, line_of(text, where), _dotted(where), problem)


def line_of(text: str, where: KeyPath) -> int:
    """Return the line, from 1, on which the key ``where`` of a valid TOML text begins, or the table that lacks it.

    ``tomllib`` gives values without positions, but the first lines of a document are a document, too: the key is on
    the line that first brings it.
    """
    document = tomllib.loads(text)
    while not _has(document, where):
        where = where[:-1]
    return next((line for line, prefix in _prefixes(text) if _has(prefix, where)), 1)


def _prefixes(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the documents that end where a value ends, each with the line on which that value begins."""
    lines, begins = text.split("\n"), 1
    for number in range(1, len(lines) + 1):
        for closing in ("", "\n]"):  # of an array of several lines
            with suppress(tomllib.TOMLDecodeError):
                yield begins, tomllib.loads("\n".join(lines[:number]) + closing)
                begins = number + 1
                break


def _has(document: Any, where: KeyPath) -> bool:
    for part in where:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _dotted(where: KeyPath) -> str:
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problem(item: dict[str, object]) -> str:
    kind, message, value = item["type"], str(item["msg"]), item.get("input")
    if kind == "extra_forbidden":
        return "is not a known key; remove it or correct its spelling"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{message}; found {value!r} ({_toml_type(value)})"


def _toml_type(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), type(value).__name__)
