"""Version discovery and microversions of the Compute API.

https://docs.openstack.org/api-guide/compute/microversions.html
"""

import re
from dataclasses import dataclass
from typing import Any

from flask import Response, g, request, url_for

from nfagent.errors import RefusedError

SERVICE = "compute"
_FORM = re.compile(r"(\d{1,4})\.(\d{1,4})$")


@dataclass(frozen=True, order=True)
class Version:
    """A microversion."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Version(2, 1)
NEWEST = Version(2, 73)


class NotAcceptableError(RefusedError):
    """An unsupported microversion."""

    status = 406


class MalformedVersionError(RefusedError):
    """A header without a valid microversion."""

    status = 400


def asked() -> Version:
    """Return the microversion of the current request; without a header, the oldest."""
    text = request.headers.get("X-OpenStack-Nova-API-Version", "")
    for part in request.headers.get("OpenStack-API-Version", "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == SERVICE:
            text = version.strip()
    if not text:
        return OLDEST
    if text == "latest":
        return NEWEST
    found = _FORM.match(text)
    if not found:
        raise MalformedVersionError("malformed", f"{text[:40]!r} is not a microversion; expected MAJOR.MINOR or latest")
    version = Version(int(found[1]), int(found[2]))
    if not OLDEST <= version <= NEWEST:
        detail = f"Version {version} is not supported by the API. Minimum is {OLDEST} and maximum is {NEWEST}."
        raise NotAcceptableError("not-acceptable", detail)
    return version


def note() -> None:
    """Determine a request's microversion."""
    g.version = asked()


def at_least(minor: int) -> bool:
    """Return whether the current request is in microversion 2.``minor`` or newer."""
    version: Version = g.version
    return version >= Version(2, minor)


def mark(response: Response) -> Response:
    """Add the microversion to an answer."""
    version = g.get("version", OLDEST)
    response.headers["OpenStack-API-Version"] = f"{SERVICE} {version}"
    response.headers["X-OpenStack-Nova-API-Version"] = str(version)
    response.headers.add("Vary", "OpenStack-API-Version, X-OpenStack-Nova-API-Version")
    return response


def document() -> dict[str, Any]:
    """Describe version 2.1 of the Compute API."""
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(NEWEST),
        "min_version": str(OLDEST),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": url_for("compute.show_version", _external=True)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}],
    }
