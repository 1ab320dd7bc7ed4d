"""The public keys of an issuer of tokens (JWKS, RFC 7517), from a file or an address."""

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt

from nfagent.errors import AgentError

_log = logging.getLogger(__name__)

_FETCH_S = 5.0
_LARGEST = 1 << 20
_OLD_S = 3600.0  # a key that the issuer has withdrawn is trusted for no longer
_PAUSE_S = 30.0  # between fetches: tokens with invented key ids must not make this agent a flood of requests


class KeysError(AgentError):
    """The keys cannot be had."""


@dataclass(frozen=True)
class Key:
    """A public key.

    Attributes:
        kid: its id.
        algorithm: the only one that it is for; None: any of its type.
        public: for `jwt.decode`.
    """

    kid: str | None
    algorithm: str | None
    public: Any


class Keys:
    """Reads keys when they are needed, and again if they are old or one is unknown, at most every 30 s.

    Thread safety: any thread may ask; one at a time reads, and the others use the keys that are there.

    Args:
        source: path, or ``https:`` address.
        trust: for the address.
        clock: seconds of a steady clock.
    """

    def __init__(self, source: str, trust: ssl.SSLContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._trust = trust
        self._clock = clock
        self._reading = threading.Lock()
        self._tried: float | None = None
        self._read: float | None = None
        self._keys: list[Key] = []

    def find(self, kid: str | None) -> Key | None:
        """Return a key by its id; without an id the only key.

        Raises:
            KeysError: no keys could be read so far.
        """
        if self._read is None or self._clock() - self._read > _OLD_S:
            self._refresh()
        found = self._known(kid)
        if found is None:
            self._refresh()
            found = self._known(kid)
        if self._read is None:
            raise KeysError(f"{self._source}: the keys could not be read")
        return found

    def _known(self, kid: str | None) -> Key | None:
        keys = self._keys
        if kid is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.kid == kid), None)

    def _refresh(self) -> None:
        if not self._reading.acquire(blocking=False):
            return
        try:
            if self._tried is not None and self._clock() - self._tried < _PAUSE_S:
                return
            self._tried = self._clock()
            self._keys, self._read = _parsed(self._content()), self._clock()
            _log.info("%s: read %d keys", self._source, len(self._keys))
        except (OSError, httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            _log.error("%s: the keys cannot be read: %s; those read before stay valid", self._source, error)
        finally:
            self._reading.release()

    def _content(self) -> bytes:
        if self._source.startswith("/"):
            return Path(self._source).read_bytes()
        answer = httpx.get(self._source, timeout=_FETCH_S, verify=self._trust, trust_env=False)
        answer.raise_for_status()
        if len(answer.content) > _LARGEST:
            raise ValueError(f"{len(answer.content)} bytes; expected at most {_LARGEST}")
        return answer.content


def _parsed(content: bytes) -> list[Key]:
    """Return the usable keys; issuers publish others beside them."""
    listed = json.loads(content)
    if not isinstance(listed, dict) or not isinstance(listed.get("keys"), list):
        raise ValueError('expected {"keys": [...]}')  # noqa: TRY004
    found = []
    for each in listed["keys"]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue
        try:
            found.append(Key(each.get("kid"), each.get("alg"), jwt.PyJWK.from_dict(each).key))
        except jwt.PyJWTError as error:
            _log.debug("a key is left out: %s", error)
    return found
