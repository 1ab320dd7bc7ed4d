"""Has a kind's own program examine a configuration before a request is accepted, and where it would run."""

import json
import logging
import re
import subprocess
import tempfile
from typing import Any

from nfagent.errors import InvalidError, UnavailableError
from nfagent.launch import CONFIG_WORD, Examined
from nfagent.model import Kind

_log = logging.getLogger(__name__)

_CHECK_S = 10.0
_REFUSED = 1
"""The exit status of ``nf check``; others are failures of the program."""
# A message such as `nf: /tmp/x.json: vips[0].address: invalid IP address syntax at line 1 column 23`.
_PLACE = re.compile(r"([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[\d+\])*): ")
_POSITION = re.compile(r" at line \d+ column \d+$")
_ELSEWHERE = ": cannot be read: "
"""The complaint of `nf check` about a missing file; the machine where the function will run may have it."""


_LACKS = re.compile(rf"(\S+){_ELSEWHERE}(No such file)?([^;(]*)")
_NOT_FOUND = (126, 127)
"""A shell's exit statuses if it cannot run a program."""


def lacking(examined: Examined, location: str) -> str | None:
    """Return what a function could not start for at a location, in words; None: nothing is known to prevent it."""
    said = _said(examined.said, examined.file)
    if examined.status in _NOT_FOUND:
        return f"{location} lacks the program {examined.command[0]}"
    if examined.status != _REFUSED:
        if examined.status:
            _log.warning("%s at %s ended with %d and %s", examined.command, location, examined.status, said)
        return None
    found = _LACKS.search(said)
    if found is None:
        return f"{location} refuses its configuration: {_POSITION.sub('', said)}"
    if found[2]:
        return f"{location} lacks {found[1]}"
    return f"{location} cannot read {found[1]}: {found[3].strip()}"


def _said(error: str, file: str) -> str:
    """Return a command's message without its name and the file's."""
    return error.strip().rpartition(f"{file}: ")[2].removeprefix("nf: ")


def check_configuration(kind: Kind, config: dict[str, Any], ports: int) -> None:
    """Refuse a configuration that an instance would refuse. A kind without `check` takes everything.

    Raises:
        InvalidError: the program refuses it; the field is the place of the value, such as ``config.vips[0].address``.
        UnavailableError: the program does not answer.
    """
    if not kind.check:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="nfagent-") as file:
        json.dump(config, file)
        file.flush()
        command = [file.name if word == CONFIG_WORD else word for word in kind.check_of(ports)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise UnavailableError("check-failed", f"{command[0]} cannot check configurations now: {error}") from error
        said = _said(done.stderr, file.name)
    if done.returncode not in (0, _REFUSED):
        _log.warning("%s ended with status %d and %s; the function itself will judge", command, done.returncode, said)
    if done.returncode != _REFUSED or _ELSEWHERE in said:
        return
    place = _PLACE.match(said)
    raise InvalidError(
        "configuration-refused",
        _POSITION.sub("", said) or f"{command[0]} refuses it",
        f"config.{place[1]}" if place else "config",
    )
