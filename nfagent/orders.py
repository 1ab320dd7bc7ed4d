"""Clients' orders of instances: checked, and written as desired state."""

import sqlite3
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nfagent import masking
from nfagent.catalog import Catalog
from nfagent.checking import check_configuration
from nfagent.clients import Client
from nfagent.errors import ConflictError, InvalidError, QuotaError
from nfagent.model import Instance, InstancePort, Kind
from nfagent.named_files import check_files
from nfagent.protocols import Fitness
from nfagent.store import Change, instances

_LEVELS = 100  # of a configuration; answers, and the parsers of network functions, accept little more


@dataclass(frozen=True)
class Order:
    """A requested instance. ``ports`` None: the minimum of its kind."""

    name: str
    kind: str
    flavor: str
    config: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    ports: int | None = None
    pin: str | None = None


@dataclass(frozen=True)
class Usage:
    """A project's use of something, and the limit of its quota."""

    used: int
    limit: int


@dataclass(frozen=True)
class Checked:
    """An order that no later check of its values refuses.

    Attributes:
        ports: number of its ports.
    """

    order: Order
    ports: int


class Orders:
    """Checks orders and writes them; all methods raise subclasses of `nfagent.errors.RefusedError`.

    Args:
        catalog: what can be deployed.
        fitness: of locations that orders name.
    """

    def __init__(self, catalog: Catalog, fitness: Fitness) -> None:
        self._catalog = catalog
        self._fitness = fitness

    def check(self, client: Client, order: Order) -> Checked:
        """Check an order's values; this may take a while, so no transaction is open meanwhile."""
        order = replace(order, config=with_secrets(order.config, {}))
        kind = self._catalog.kind(order.kind)
        self._catalog.flavor(order.flavor)
        count = _port_count(kind, order.ports)
        pin = self.pin(client, order.pin)
        self.check_files(client, kind, order.config, {}, client.project)
        check_configuration(kind, order.config, count)
        self.check_fitness(kind, order.config, count, pin)
        return Checked(order, count)

    def add(self, change: Change, project: str, wanted: Sequence[Checked]) -> list[Instance]:
        """Write instances of a project: all of them, or none if the change is given up."""
        for each in wanted:
            self.check_name(change, project, each.order.name)
        self._check_quota(change, project, wanted)
        count = sum(each.ports for each in wanted)
        free = self._catalog.free_ports(instances.port_owners(change.db), count)
        if len(free) < count:
            have = len(self._catalog.port_numbers)
            named = ", ".join(repr(each.order.name) for each in wanted)
            detail = f"instance {named} needs {count} port(s); only {len(free)} of the server's {have} are free"
            raise ConflictError("ports-exhausted", detail)
        made = []
        for each in wanted:
            made.append(_instance(each.order, project, free[: each.ports]))
            free = free[each.ports :]
            instances.add(change, made[-1])
        return made

    # ---- checks of single values, for changes as well

    def pin(self, client: Client, pin: str | None) -> str | None:
        """Check a location to pin to, and return it."""
        if pin is None:
            return None
        client.require_admin("pinning an instance")
        return self._catalog.location(pin, "pin")

    def check_fitness(self, kind: Kind, config: dict[str, Any], ports: int, pin: str | None) -> None:
        """Refuse to pin to a location that lacks something."""
        why = None if pin is None else self._fitness.look(kind, config, ports, pin)
        if why is not None:
            raise InvalidError("location-unfit", f"it cannot run at {pin}: {why}", "pin")

    def check_name(self, change: Change, project: str, name: str) -> None:
        """Refuse a name that is taken."""
        for holder in instances.named(change.db, name, project):
            state = "" if holder.present else ", which is being deleted"
            raise ConflictError("name-taken", f"the name {name!r} belongs to instance {holder.id}{state}")

    def check_files(
        self, client: Client, kind: Kind, config: dict[str, Any], before: dict[str, Any], project: str
    ) -> None:
        """Refuse files that a client may not name."""
        if client.role != "admin":
            check_files(kind.files, config, before, self._catalog.project_files, project)

    def check_workers(self, change: Change, instance: Instance, flavor: str) -> None:
        """Refuse a larger flavor that the quota has no room for."""
        before, after = self._catalog.flavors.get(instance.flavor), self._catalog.flavors[flavor]
        more = after.workers - (before.workers if before else 1)
        usage = self.usage(change.db, instance.project)["workers"]
        if more > 0:
            check_room(instance.project, "workers", usage.used, more, usage.limit)

    def usage(self, db: sqlite3.Connection, project: str) -> dict[str, Usage]:
        """Return a project's use of ``instances``, ``ports`` and ``workers``."""
        quota, used, flavors = self._catalog.quota, instances.usage(db, project), self._catalog.flavors
        # A flavor that agent.toml no longer has counts as one worker.
        workers = sum(count * flavors[name].workers if name in flavors else count for name, count, _ in used)
        return {
            "instances": Usage(sum(count for _, count, _ in used), quota.instances),
            "ports": Usage(sum(each for _, _, each in used), quota.ports),
            "workers": Usage(workers, quota.workers),
        }

    def _check_quota(self, change: Change, project: str, wanted: Sequence[Checked]) -> None:
        workers = sum(self._catalog.flavors[each.order.flavor].workers for each in wanted)
        more = {"instances": len(wanted), "ports": sum(each.ports for each in wanted), "workers": workers}
        for what, usage in self.usage(change.db, project).items():
            check_room(project, what, usage.used, more[what], usage.limit)


def check_room(project: str, what: str, have: int, more: int, most: int) -> None:
    """Refuse what is above a project's quota."""
    if have + more > most:
        raise QuotaError(f"project {project!r} has {have} of at most {most} {what}; {more} more were requested")


def with_secrets(config: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the secrets of the one ``before`` in place of masks.

    Raises:
        InvalidError: it is nested too deeply, or masks a value that was not a secret.
    """
    if _is_deeper(config, _LEVELS):
        raise InvalidError(
            "invalid", f"the configuration is nested in more than {_LEVELS} levels; flatten it", "config"
        )
    try:
        return masking.unmasked(config, before)
    except LookupError as error:
        detail = f"{error.args[0]}: {masking.MASK!r} stands for a secret that is not shown, but there was none; give it"
        raise InvalidError("secret-masked", detail, f"config.{error.args[0]}") from None


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether lists and objects are nested in more levels; not recursive, because clients choose the depth."""
    left = [(value, 1)]
    while left:
        value, level = left.pop()
        if isinstance(value, dict | list):
            if level > levels:
                return True
            left += [(each, level + 1) for each in (value.values() if isinstance(value, dict) else value)]
    return False


def _port_count(kind: Kind, wanted: int | None) -> int:
    least, most = kind.ports
    count = least if wanted is None else wanted
    if not least <= count <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise InvalidError("ports-unfit", f"a {kind.name} has {expected} port(s), not {count}", "ports")
    return count


def _instance(order: Order, project: str, ports: tuple[InstancePort, ...]) -> Instance:
    return Instance(
        id=str(uuid.uuid4()),
        name=order.name,
        project=project,
        kind=order.kind,
        flavor=order.flavor,
        config=order.config,
        labels=order.labels,
        pin=order.pin,
        target=None,
        present=True,
        generation=1,
        created=time.time(),
        ports=ports,
    )
