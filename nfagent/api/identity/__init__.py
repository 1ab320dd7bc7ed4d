"""Tokens of identity services: OpenID Connect and Keystone."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from nfagent.clients import ROLES, Client, Role
from nfagent.errors import ForbiddenError, UnauthorizedError, UnavailableError

DEFAULT_PROJECT = "default"


class Identity(Protocol):
    """An identity service."""

    def may_know(self, token: str) -> bool:
        """Tell by its form whether a token may be of this service."""
        ...

    def client(self, token: str) -> Client:
        """Return a token's owner.

        Raises:
            UnauthorizedError: the token is invalid.
            ForbiddenError: its owner has no role here.
            UnavailableError: the service does not answer.
        """
        ...


def client_of(subject: str, project: str | None, held: Iterable[str], roles: Mapping[str, Role]) -> Client:
    """Return the client of a verified token, with the highest of its roles.

    Args:
        subject: its owner.
        project: its project; None: it names none.
        held: the owner's roles at the service.
        roles: the roles here, by those of the service.

    Raises:
        ForbiddenError: it has no role here, or is a tenant without a project.
    """
    held = list(held)
    found: set[Role] = {roles[each] for each in held if each in roles}
    if not found:
        has = ", ".join(held) or "none"
        raise ForbiddenError("role-missing", f"{subject!r} needs one of the roles {', '.join(roles)}; it has {has}")
    role = min(found, key=ROLES.index)
    if project is None and role == "tenant":
        raise ForbiddenError("project-missing", f"the token of {subject!r} names no project, which a tenant needs")
    return Client.of(role, project or DEFAULT_PROJECT, subject)


def invalid(why: str) -> UnauthorizedError:
    """Return the refusal of a token."""
    return UnauthorizedError("token-invalid", f"the token of this request is invalid: {why}")


def unavailable(service: str, why: str) -> UnavailableError:
    """Return the answer while a service cannot be asked."""
    return UnavailableError("identity-unavailable", f"{service} cannot be asked about this token: {why}; try again")
