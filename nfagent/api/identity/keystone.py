"""Tokens of Keystone, which says whose they are: https://docs.openstack.org/api-ref/identity/v3/#validate-token."""

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from nfagent.api.identity import client_of, invalid, unavailable
from nfagent.api.tokens import digest
from nfagent.clients import Client
from nfagent.config import KeystoneConfig
from nfagent.errors import ForbiddenError, RefusedError, UnauthorizedError

_ASK_S = 5.0
_AT_A_TIME = 4  # requests to Keystone: invented tokens must not take all threads while it is slow
_KEPT_MAX = 10_000
_REFUSED_S = 10.0  # a refusal is kept for


class _Named(BaseModel):
    id: str = ""
    name: str = ""


class _Token(BaseModel):
    expires_at: datetime
    user: _Named
    project: _Named | None = None
    roles: list[_Named] = []


class _Answer(BaseModel):
    token: _Token


@dataclass(frozen=True)
class _Kept:
    outcome: Client | RefusedError
    until: float


class Keystone:
    """See `nfagent.api.identity.Identity`. Its answers are kept for a while.

    Args:
        config: ``[api.keystone]``.
        trust: for its address.
        clock: seconds since the epoch.
    """

    def __init__(self, config: KeystoneConfig, trust: ssl.SSLContext, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._http = httpx.Client(timeout=_ASK_S, verify=trust, trust_env=False)
        self._asking = threading.Semaphore(_AT_A_TIME)
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}  # the oldest first

    def may_know(self, token: str) -> bool:
        return token.isascii() and token.isprintable() and " " not in token

    def client(self, token: str) -> Client:
        key = digest(token)
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or kept.until <= self._clock():
            kept = self._asked(token)
            self._keep(key, kept)
        if isinstance(kept.outcome, RefusedError):
            raise kept.outcome
        return kept.outcome

    def _keep(self, key: bytes, kept: _Kept) -> None:
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = kept

    def _asked(self, token: str) -> _Kept:
        found = self._validated(token)
        now = self._clock()
        if isinstance(found, UnauthorizedError):
            return _Kept(found, now + _REFUSED_S)
        ends = found.expires_at.timestamp()
        if ends <= now:
            return _Kept(invalid("it has expired"), now + _REFUSED_S)
        project = found.project and (found.project.name if self._config.project == "name" else found.project.id)
        held = [each.name for each in found.roles]
        try:
            outcome = client_of(found.user.name or found.user.id, project or None, held, self._config.roles)
        except ForbiddenError as error:
            outcome = error
        return _Kept(outcome, min(now + self._config.cache_s, ends))

    def _validated(self, token: str) -> _Token | UnauthorizedError:
        """Ask Keystone. A token may validate itself, so that this agent needs no password of its own."""
        if not self._asking.acquire(blocking=False):
            raise unavailable("Keystone", f"{_AT_A_TIME} other requests wait for its answer")
        try:
            answer = self._http.get(f"{self._config.url}/auth/tokens", headers=_headers(token))
        except httpx.HTTPError as error:
            raise unavailable(f"Keystone at {self._config.url}", str(error) or type(error).__name__) from error
        finally:
            self._asking.release()
        if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
            return invalid("Keystone does not know it")
        if answer.status_code != HTTPStatus.OK:
            raise unavailable(f"Keystone at {self._config.url}", f"it answered HTTP {answer.status_code}")
        try:
            return _Answer.model_validate_json(answer.content).token
        except ValidationError as error:
            first: Any = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise unavailable(f"Keystone at {self._config.url}", f"its answer: {where}: {first['msg']}") from error


def _headers(token: str) -> dict[str, str]:
    return {"X-Auth-Token": token, "X-Subject-Token": token, "Accept": "application/json"}
