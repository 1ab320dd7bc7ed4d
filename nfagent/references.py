"""Finding what belongs to a project by what a client writes."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nfagent.clients import Client
from nfagent.errors import ConflictError


class Belonging(Protocol):
    """An instance or a chain."""

    @property
    def name(self) -> str:
        """Return its name, unique in its project."""
        ...

    @property
    def project(self) -> str:
        """Return the project of the client who created it."""
        ...


_Found = TypeVar("_Found", bound=Belonging)


def may_see(client: Client, thing: Belonging) -> bool:
    """Tell whether something exists for a client: tenants see only their project's."""
    return client.admin or client.project == thing.project


def find_named(
    client: Client, reference: str, plural: str, named: Callable[[str, str | None], Sequence[_Found]]
) -> _Found | None:
    """Find something by its name in the client's project; administrators may also write PROJECT/NAME.

    Args:
        client: the client that asks.
        reference: the text that the client wrote.
        plural: the word for such things in the error, such as ``instances``.
        named: returns those with a name, in one project or (None) in all.

    Raises:
        ConflictError: several projects have one, and the administrator's has none.
    """
    project, _, name = reference.rpartition("/")
    if project and not client.admin and project != client.project:
        return None
    own = named(name, project or client.project)
    if own or project or not client.admin:
        return next(iter(own), None)
    found = named(name, None)
    if len(found) > 1:
        choices = ", ".join(f"{each.project}/{each.name}" for each in found)
        raise ConflictError("name-ambiguous", f"several {plural} are named {name!r}; use one of {choices}")
    return next(iter(found), None)
