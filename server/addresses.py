"""Addresses in Open vSwitch's syntax, as pydantic field types.

Active: ``tcp:HOST[:PORT]``, ``ssl:HOST[:PORT]``, ``unix:PATH``.
Passive: ``ptcp:[PORT][:HOST]``, ``pssl:[PORT][:HOST]``, ``punix:PATH``.
An IPv6 host is in brackets. The port defaults to OpenFlow's, 6653.
"""

import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator

_HOST = r"(\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9._-]+)"
_ACTIVE = re.compile(rf"(tcp|ssl):{_HOST}(:(?P<port>\d+))?$")
_PASSIVE = re.compile(rf"(ptcp|pssl):(?P<port>\d+)?(:{_HOST})?$")
_PATH = re.compile(r"p?unix:.+$")


def _check(value: str, pattern: re.Pattern[str], path_prefix: str, expected: str, *, port_needed: bool = False) -> str:
    if value.startswith(path_prefix) and _PATH.match(value):
        return value
    found = pattern.match(value)
    port = found and found["port"]
    if not found or (port_needed and not port):
        raise ValueError(f"{value!r} is not an address; expected {expected}")
    if port and not 1 <= int(port) <= 65535:
        raise ValueError(f"{value!r}: port {port} is not between 1 and 65535")
    return value


def _connect(value: str) -> str:
    return _check(value, _ACTIVE, "unix:", "tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH")


def _listen(value: str) -> str:
    return _check(value, _PASSIVE, "punix:", "ptcp:[PORT][:HOST], pssl:[PORT][:HOST] or punix:PATH")


def _remote(value: str) -> str:
    return _check(value, _ACTIVE, "unix:", "tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH", port_needed=True)


def _api(value: str) -> str:
    if value.startswith("ssl:"):
        raise ValueError(f"{value!r}: the API speaks plain HTTP; expected unix:PATH or tcp:HOST:PORT")
    return _check(value, _ACTIVE, "unix:", "unix:PATH or tcp:HOST:PORT", port_needed=True)


def _unix(value: str) -> str:
    if not value.startswith("unix:") or not _PATH.match(value):
        raise ValueError(f"{value!r} is not a unix socket; expected unix:PATH")
    return value


def _tcp(value: str) -> str:
    host, _, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        version = ip_address(host[1:-1] if bracketed else host).version
    except ValueError:
        version = None
    if version is None or bracketed != (version == 6) or not re.fullmatch("[0-9]{1,5}", port):
        raise ValueError(f"{value!r} is not an IP address and a TCP port; expected such as 192.0.2.1:7700")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{value!r}: port {port} is not between 1 and 65535")
    return value


Connect = Annotated[str, AfterValidator(_connect)]
"""An address to connect to for OpenFlow."""

Listen = Annotated[str, AfterValidator(_listen)]
"""An address to listen on for OpenFlow."""

Remote = Annotated[str, AfterValidator(_remote)]
"""The address of an OVSDB server, with a port, because none is conventional."""

ApiAddress = Annotated[str, AfterValidator(_api)]
"""The address of oneswitchd's REST interface."""

TcpAddress = Annotated[str, AfterValidator(_tcp)]
"""An IP address, an IPv6 one in brackets, and a TCP port."""

UnixAddress = Annotated[str, AfterValidator(_unix)]
"""The address of a unix socket."""
