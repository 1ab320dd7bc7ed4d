"""Clients and their roles."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from nfagent.errors import ForbiddenError

Role = Literal["admin", "operator", "reader", "tenant"]

ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Client:
    """A client: a tenant sees its project but not where things run; the other roles see the whole server.

    Attributes:
        project: owns what this client creates.
        admin: whether it sees the whole server: an administrator, operator or reader.
        limit: ``operator``: an administrator without secrets; ``reader``: one who, in addition, changes nothing.
        subject: a person or program, for the audit log.
    """

    project: str
    admin: bool
    limit: Literal["operator", "reader"] | None = None
    subject: str = field(default="", compare=False)

    @classmethod
    def of(cls, role: Role, project: str, subject: str = "") -> "Client":
        """Return a client with a role."""
        limit = role if role in ("operator", "reader") else None
        return cls(project, admin=role != "tenant", limit=limit, subject=subject)

    @property
    def role(self) -> Role:
        """Return its role."""
        return self.limit or ("admin" if self.admin else "tenant")

    def require_admin(self, what: str) -> None:
        """Refuse tenants.

        Raises:
            ForbiddenError: the client is a tenant.
        """
        if not self.admin:
            detail = f"{what} requires the role reader, operator or admin; {self.project!r} is a tenant"
            raise ForbiddenError("administrators-only", detail)

    def require_change(self, what: str) -> None:
        """Refuse readers.

        Raises:
            ForbiddenError: the client is a reader.
        """
        if self.limit == "reader":
            raise ForbiddenError("role-insufficient", f"{what} requires the role operator or admin; this is a reader")
