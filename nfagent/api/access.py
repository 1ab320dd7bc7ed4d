"""Who a request comes from: tokens, the socket that it came in by, and the page that made a browser send it."""

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nfagent.api.tokens import Tokens, digest
from nfagent.config import Anonymous
from nfagent.desired import Client
from nfagent.errors import ForbiddenError, UnauthorizedError

LOCAL = "nfagent.local"
"""In a WSGI environment: the request came by a unix socket."""

OPERATORS = "default"
"""The project of those who need no token."""

_READS = ("GET", "HEAD")
# What keystoneauth sends with `--os-auth-type none`.
_NO_TOKEN = ("", "notused")


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
        self._tokens = Tokens(tokens)
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
        return _badge(digest(token))

    def visitor(self, environ: Mapping[str, Any], badge: str | None) -> Client:
        """Who looks at the dashboard: as `client`, or with a badge.

        Raises:
            UnauthorizedError, ForbiddenError: as for `client`.
        """
        shown = digest(badge or "")
        entries = self._tokens.entries()
        found = [entry.client for entry in entries if hmac.compare_digest(digest(_badge(entry.digest)), shown)]
        return found[0] if found else self.client(environ)

    def check_origin(self, environ: Mapping[str, Any]) -> None:
        """Refuse what a page of another origin has made a browser send: it has all rights of the browser's user.

        Raises:
            ForbiddenError: it comes from such a page.
        """
        site = str(environ.get("HTTP_SEC_FETCH_SITE", ""))
        origin = str(environ.get("HTTP_ORIGIN", ""))
        if site:
            # A link that is followed to here only shows what is here.
            follows = environ.get("HTTP_SEC_FETCH_MODE") == "navigate" and environ.get("REQUEST_METHOD") in _READS
            is_foreign = site not in ("same-origin", "none") and not follows
        else:
            is_foreign = origin != "" and urlsplit(origin).netloc.lower() != str(environ.get("HTTP_HOST", "")).lower()
        if is_foreign:
            detail = f"a page of {origin or 'another origin'} sent this request; only pages of this address may"
            raise ForbiddenError("origin-foreign", detail)

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
        shown = digest(token)
        # All are compared, each in constant time: how long it takes tells nothing about any of them.
        found = [entry.client for entry in self._tokens.entries() if hmac.compare_digest(entry.digest, shown)]
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


def _badge(token: bytes) -> str:
    # Follows from the token, so that it outlives a restart of the agent; the token does not follow from it.
    return hmac.new(token, b"dashboard", "sha256").hexdigest()
