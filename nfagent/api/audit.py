"""The audit log: who changed what, and who was refused. One JSON object per line; never a value that a client sent."""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler, SysLogHandler
from pathlib import Path
from typing import Any

from flask import Flask, Response, g, request

from nfagent.api.access import LOCAL
from nfagent.api.schemas import iso
from nfagent.clients import Client
from nfagent.config import AuditConfig
from nfagent.errors import AgentError

_log = logging.getLogger(__name__)

_READS = ("GET", "HEAD", "OPTIONS")
_READING_POSTS = ("v1.placement.dry_run",)
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_SYSLOG = "/dev/log"
_NAME = "nfagent-audit: "
_TEXT_MAX = 200  # characters of a path or an object, which clients choose
_FIELDS_MAX = 20
_BURST = 100.0  # refusals recorded at once
_PER_S = 5.0  # refusals recorded in the long run: a flood of them must not push changes out of the rotated files
_SILENT_S = 60.0  # between complaints


class AuditError(AgentError):
    """The audit log cannot be written."""


class Audit:
    """Writes entries.

    Thread safety: any thread may write.

    Args:
        config: ``[audit]``.
        state: directory of the file, if the configuration names none.
        clock: seconds of a steady clock.

    Raises:
        AuditError: the file cannot be opened, or no syslog listens.
    """

    def __init__(self, config: AuditConfig, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._allowance, self._at, self._left_out = _BURST, clock(), 0
        self._handler = _handler(config, state)
        if self._handler is not None:
            self._handler.handleError = self._complain
        self._complained = float("-inf")

    def write(self, entry: dict[str, Any], *, is_refusal: bool) -> None:
        """Write an entry; refusals above a rate are counted instead, and the next one that is written has the count."""
        if self._handler is None or (is_refusal and not self._has_room(entry)):
            return
        text = json.dumps(entry)
        self._handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        """Close the file."""
        if self._handler is not None:
            self._handler.close()

    def _has_room(self, entry: dict[str, Any]) -> bool:
        with self._lock:
            now = self._clock()
            self._allowance, self._at = min(_BURST, self._allowance + (now - self._at) * _PER_S), now
            if self._allowance < 1:
                self._left_out += 1
                return False
            self._allowance -= 1
            if self._left_out:
                entry["left_out"], self._left_out = self._left_out, 0
            return True

    def _complain(self, record: logging.LogRecord) -> None:
        """Log that an entry is lost, with the entry, whose change has been made."""
        if self._clock() - self._complained > _SILENT_S:
            self._complained = self._clock()
            _log.error("an entry of the audit log cannot be written: %s", record.getMessage(), exc_info=True)
        if isinstance(self._handler, _PrivateFile):
            self._handler.reopen()


class _PrivateFile(RotatingFileHandler):
    """A rotated file that only its owner can read."""

    def reopen(self) -> None:
        """Discard what could not be written, and open the file again for the next entry."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):  # it tries to write once more
                stream.close()

    def _open(self) -> TextIOWrapper:
        return os.fdopen(_opened(self.baseFilename), "a", encoding="utf-8")


def _opened(path: str | Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _handler(config: AuditConfig, state: Path) -> logging.Handler | None:
    if config.to == "none":
        return None
    try:
        if config.to == "syslog":
            made = SysLogHandler(_SYSLOG, SysLogHandler.LOG_AUTHPRIV)
            made.ident = _NAME
            return made
        path = Path(config.file) if config.file else state / "audit.log"
        if config.file is None:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(_opened(path))  # so that an unusable one is found now
        return _PrivateFile(path, maxBytes=config.max_mb << 20, backupCount=config.keep, encoding="utf-8", delay=True)
    except OSError as error:
        where = _SYSLOG if config.to == "syslog" else config.file or state
        raise AuditError(f"[audit]: {where} cannot be used: {error.strerror or error}") from error


def install(app: Flask, audit: Audit) -> None:
    """Record every request of an application that changes something, or that is refused."""

    def note(response: Response) -> Response:
        is_refusal = response.status_code in _REFUSED
        if is_refusal or _is_change(response):
            audit.write(_entry(response), is_refusal=is_refusal)
        return response

    app.after_request(note)


def _is_change(response: Response) -> bool:
    is_reading_action = request.endpoint == "compute.act" and response.status_code == HTTPStatus.OK  # console output
    return request.method not in _READS and request.endpoint not in _READING_POSTS and not is_reading_action


def _entry(response: Response) -> dict[str, Any]:
    client: Client | None = g.get("client")
    answer = response.get_json(silent=True) if response.is_json else None
    answer = answer if isinstance(answer, dict) else {}
    entry: dict[str, Any] = {
        "time": iso(time.time()),
        "subject": client.subject if client else None,
        "role": client.role if client else None,
        "project": client.project if client else None,
        "from": "unix socket" if request.environ.get(LOCAL) else request.remote_addr,
        "method": request.method,
        "path": request.path[:_TEXT_MAX],
        "object": _object(answer),
        "result": response.status_code,
    }
    if response.status_code < HTTPStatus.BAD_REQUEST:
        entry["fields"] = _fields()
    elif isinstance(answer.get("code"), str):
        entry["code"] = answer["code"]
    return entry


def _object(answer: dict[str, Any]) -> str | None:
    """Return the id of what was changed or asked for."""
    inner = answer.get("server")
    found = inner.get("id") if isinstance(inner, dict) else answer.get("instance") or answer.get("id")
    if not isinstance(found, str):
        found = next(iter((request.view_args or {}).values()), None)
    return str(found)[:_TEXT_MAX] if found is not None else None


def _fields() -> list[str]:
    """Return the names of the given members."""
    body = request.get_json(silent=True) if request.is_json else None
    return sorted(str(name)[:_TEXT_MAX] for name in body)[:_FIELDS_MAX] if isinstance(body, dict) else []
