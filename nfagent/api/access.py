"""Authentication of requests: tokens, the socket that they arrived by, and the page that made a browser send them."""

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nfagent.api.identity import Identity
from nfagent.api.tokens import Tokens, digest
from nfagent.clients import Client
from nfagent.config import Anonymous
from nfagent.errors import ForbiddenError, UnauthorizedError

LOCAL = "nfagent.local"
"""In a WSGI environment: the request arrived by a unix socket."""

OPERATORS = "default"
"""The project of clients without a token."""

_READS = ("GET", "HEAD")
# keystoneauth sends this with `--os-auth-type none`.
_NO_TOKEN = ("", "notused")


class Access:
    """Authenticates clients.

    Args:
        tokens: the file; None: no file.
        anonymous: rights of clients without a token over TCP.
        listen: addresses as in agent.toml.
        identities: services whose tokens are accepted, too.

    Raises:
        ConfigError: the file cannot be used; the message names the line.
    """

    def __init__(
        self,
        tokens: Path | None,
        anonymous: Anonymous,
        listen: Collection[str] = (),
        identities: Collection[Identity] = (),
    ) -> None:
        self._tokens = Tokens(tokens)
        self._anonymous: Anonymous = anonymous
        self._identities = identities
        self._hosts = {_host(each[4:]) for each in listen if each.startswith(("tcp:", "tls:"))} | {"localhost"}

    def client(self, environ: Mapping[str, Any]) -> Client:
        """Return the sender of this request.

        Raises:
            UnauthorizedError: the sender is unknown.
            ForbiddenError: a foreign page made a browser send it.
        """
        token = _token(environ)
        if token not in _NO_TOKEN:
            return self._bearer(token)
        if environ.get(LOCAL):
            return Client(OPERATORS, admin=True, subject="the unix socket")
        if self._anonymous != "nobody":
            self._check_host(str(environ.get("HTTP_HOST", "")))
            return Client.of(self._anonymous, OPERATORS, "anonymous")
        raise UnauthorizedError("token-missing", "no token; send Authorization: Bearer TOKEN (or X-Auth-Token: TOKEN)")

    def badge(self, token: str) -> str:
        """Return what a browser keeps instead of a token of the file: it opens the dashboard and nothing else.

        Raises:
            UnauthorizedError: the token is unknown.
        """
        if self._in_file(token) is None:
            raise _unknown()
        return _badge(digest(token))

    def visitor(self, environ: Mapping[str, Any], badge: str | None) -> Client:
        """Return the viewer of the dashboard: as `client`, or with a badge.

        Raises:
            UnauthorizedError, ForbiddenError: as for `client`.
        """
        shown = digest(badge or "")
        entries = self._tokens.entries()
        found = [entry.client for entry in entries if hmac.compare_digest(digest(_badge(entry.digest)), shown)]
        return found[0] if found else self.client(environ)

    def check_origin(self, environ: Mapping[str, Any]) -> None:
        """Refuse cross-origin requests of browsers: such a page would have all rights of the browser's user.

        Raises:
            ForbiddenError: it comes from such a page.
        """
        site = str(environ.get("HTTP_SEC_FETCH_SITE", ""))
        origin = str(environ.get("HTTP_ORIGIN", ""))
        if site:
            # Following a link to this address only shows what is here.
            follows = environ.get("HTTP_SEC_FETCH_MODE") == "navigate" and environ.get("REQUEST_METHOD") in _READS
            is_foreign = site not in ("same-origin", "none") and not follows
        else:
            is_foreign = origin != "" and urlsplit(origin).netloc.lower() != str(environ.get("HTTP_HOST", "")).lower()
        if is_foreign:
            detail = f"a page of {origin or 'another origin'} sent this request; only pages of this address may"
            raise ForbiddenError("origin-foreign", detail)

    def _check_host(self, header: str) -> None:
        """Check the Host header of a request without a token: the sender is local, but so is a browser with any page.

        Such a page's name may resolve to this address (DNS rebinding), but the browser sends that name as Host. A
        sender without Host is not a browser.
        """
        host = _host(header)
        if header and host not in self._hosts and not _is_loopback(host):
            detail = f"Host {header!r} is not this machine's own; without a token ask for localhost or 127.0.0.1"
            raise ForbiddenError("host-unknown", detail)

    def _bearer(self, token: str) -> Client:
        found = self._in_file(token)
        if found is not None:
            return found
        for each in self._identities:
            if each.may_know(token):
                return each.client(token)
        raise _unknown()

    def _in_file(self, token: str) -> Client | None:
        shown = digest(token)
        # Compare all of them, each in constant time, so that the duration reveals nothing.
        found = [entry.client for entry in self._tokens.entries() if hmac.compare_digest(entry.digest, shown)]
        return found[0] if found else None


def _unknown() -> UnauthorizedError:
    return UnauthorizedError("token-unknown", "the token of this request is unknown")


def _token(environ: Mapping[str, Any]) -> str:
    scheme, _, value = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme:
        return "a scheme that is not Bearer"  # is not a token, and so unknown
    return str(environ.get("HTTP_X_AUTH_TOKEN", "")).strip()


def _host(text: str) -> str:
    """Normalise ``HOST`` or ``HOST:PORT`` for comparison."""
    host, _, port = text.rpartition(":")
    return (host if port.isdecimal() else text).strip("[]").lower()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _badge(token: bytes) -> str:
    # Derived from the token, so that it survives a restart of the agent; the token cannot be derived from it.
    return hmac.new(token, b"dashboard", "sha256").hexdigest()
