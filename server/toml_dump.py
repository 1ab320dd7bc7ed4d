"""Writes the subset of TOML that server.toml uses; the standard library only reads TOML."""

import json
import re
from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+$")


def dump_document(document: Mapping[str, object]) -> str:
    """Return TOML text of a tree of tables, arrays of tables, strings, integers, floats and booleans.

    Raises:
        TypeError: a value has another type, such as None, which has no TOML form.
    """
    return "\n".join(_table(document, ())).lstrip("\n") + "\n"


def _table(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    later: list[tuple[str, object]] = []
    for key, value in table.items():
        if _is_table_array(value) or (isinstance(value, Mapping) and len(path) < 1) or key == "tls":
            later.append((key, value))
        else:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in later:
        inner = (*path, key)
        header = ".".join(_key(part) for part in inner)
        if isinstance(value, Mapping):
            yield f"\n[{header}]"
            yield from _table(value, inner)
        elif isinstance(value, list):
            for item in value:
                yield f"\n[[{header}]]"
                yield from _table(item, inner)


def _is_table_array(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if _BARE.match(key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    raise TypeError(f"{value!r} ({type(value).__name__}) has no TOML form")
