"""Who a request comes from: tokens, and the socket that it came in by.

The file of tokens has one on each line: ``PROJECT tenant|admin TOKEN``; ``#`` begins a comment.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfagent.config import Anonymous
from nfagent.desired import Client
from nfagent.errors import ForbiddenError, UnauthorizedError
from nfagent.plumbing.errors import ConfigError

LOCAL = "nfagent.local"
"""In a WSGI environment: the request came by a unix socket."""

OPERATORS = "default"
"""The project of those who need no token."""

_SHORTEST = 16
_ROLES = ("tenant", "admin")
# What keystoneauth sends with `--os-auth-type none`.
_NO_TOKEN = ("", "notused")


@dataclass(frozen=True)
class _Entry:
    digest: bytes
    client: Client


class Access:
    """Knows clients.

    Args:
        tokens: the file; None: there is none.
        anonymous: what those without a token may do over TCP.
        listen: addresses as in agent.toml.

    Raises:
        ConfigError: the file cannot be used; names the line.
    """

    def __init__(self, tokens: Path | None, anonymous: Anonymous, listen: Collection[str] = ()) -> None:
        self._entries = [] if tokens is None else _read(tokens)
        self._anonymous = anonymous
        self._hosts = {_host(each.removeprefix("tcp:")) for each in listen if each.startswith("tcp:")} | {"localhost"}

    def client(self, environ: Mapping[str, Any]) -> Client:
        """Who sent this request.

        Raises:
            UnauthorizedError: nobody who is known.
            ForbiddenError: a browser that a page of somebody else's has made send it.
        """
        token = _token(environ)
        if token not in _NO_TOKEN:
            return self._bearer(token)
        if environ.get(LOCAL):
            return Client(OPERATORS, admin=True)
        if self._anonymous != "nobody":
            self._check_host(str(environ.get("HTTP_HOST", "")))
            return Client(OPERATORS, admin=self._anonymous == "admin")
        raise UnauthorizedError("token-missing", "no token; send Authorization: Bearer TOKEN (or X-Auth-Token: TOKEN)")

    def badge(self, token: str) -> str:
        """What a browser keeps instead of a token: it opens the dashboard and nothing else.

        Raises:
            UnauthorizedError: the token is not known.
        """
        self._bearer(token)
        return _badge(_digest(token))

    def visitor(self, environ: Mapping[str, Any], badge: str | None) -> Client:
        """Who looks at the dashboard: as `client`, or with a badge.

        Raises:
            UnauthorizedError, ForbiddenError: as for `client`.
        """
        shown = _digest(badge or "")
        found = [entry.client for entry in self._entries if hmac.compare_digest(_digest(_badge(entry.digest)), shown)]
        return found[0] if found else self.client(environ)

    def _check_host(self, header: str) -> None:
        """Who may go without a token is on this machine, and so is a browser there whatever page it shows.

        The name of such a page may be made to lead here (DNS rebinding), but the browser says which name that was.
        What says none is no browser.
        """
        host = _host(header)
        if header and host not in self._hosts and not _is_loopback(host):
            detail = f"Host {header!r} is not this machine's own; without a token ask for localhost or 127.0.0.1"
            raise ForbiddenError("host-unknown", detail)

    def _bearer(self, token: str) -> Client:
        digest = _digest(token)
        # All are compared, each in constant time: how long it takes tells nothing about any of them.
        found = [entry.client for entry in self._entries if hmac.compare_digest(entry.digest, digest)]
        if not found:
            raise UnauthorizedError("token-unknown", "the token of this request is not known here")
        return found[0]


def _token(environ: Mapping[str, Any]) -> str:
    scheme, _, value = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme:
        return "a scheme that is not Bearer"  # is no token, and so not known
    return str(environ.get("HTTP_X_AUTH_TOKEN", "")).strip()


def _host(text: str) -> str:
    """Of ``HOST`` or ``HOST:PORT``, as it is compared."""
    host, _, port = text.rpartition(":")
    return (host if port.isdecimal() else text).strip("[]").lower()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    # Of equal length, whatever is compared.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _badge(digest: bytes) -> str:
    # Follows from the token, so that it outlives a restart of the agent; the token does not follow from it.
    return hmac.new(digest, b"dashboard", hashlib.sha256).hexdigest()


def _read(path: Path) -> list[_Entry]:
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, None, "", f"the tokens cannot be read: {error}") from error
    if mode & 0o077:
        raise ConfigError(path, None, "", f"others can read the tokens (mode {mode & 0o777:o}); chmod 600 {path}")
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[1] not in _ROLES:
            raise ConfigError(path, number, "", "expected PROJECT tenant|admin TOKEN")
        project, role, token = words
        if len(token) < _SHORTEST:
            raise ConfigError(path, number, "", f"a token of {len(token)} characters; at least {_SHORTEST} are needed")
        entries.append(_Entry(_digest(token), Client(project, admin=role == "admin")))
    return entries
