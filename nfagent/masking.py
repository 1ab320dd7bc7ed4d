"""Secrets in configurations: only administrators see them.

A value is secret if its key says so, such as ``password`` or ``api_token``, or if it is a private key in PEM.
"""

import re
from typing import Any

MASK = "********"
"""In place of a secret. In a changed configuration it means: as it was."""

_NAMES = "password|passphrase|secret|token|credential|private[_-]?key|api[_-]?key|psk"
_KEY = re.compile(rf"(?:^|[_-])(?:{_NAMES})s?$", re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def masked(value: Any, key: str = "") -> Any:
    """Return a configuration without its secrets."""
    if isinstance(value, dict):
        return {name: masked(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [masked(each, key) for each in value]
    if isinstance(value, str) and value and (_KEY.search(key) or _PEM.search(value)):
        return MASK
    return value


def unmasked(value: Any, before: Any) -> Any:
    """Return a changed configuration with the secrets that it masks, as they were ``before`` at the same place.

    Raises:
        LookupError: a place had no secret before; the argument is its path.
    """
    return _unmasked(value, before, "")


def _unmasked(value: Any, before: Any, path: str) -> Any:
    if value == MASK:
        if not isinstance(before, str):
            raise LookupError(path)
        return before
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        return {name: _unmasked(each, old.get(name), f"{path}.{name}".lstrip(".")) for name, each in value.items()}
    if isinstance(value, list):
        had = before if isinstance(before, list) else []
        return [
            _unmasked(each, had[index] if index < len(had) else None, f"{path}[{index}]")
            for index, each in enumerate(value)
        ]
    return value
