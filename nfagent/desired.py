"""Clients' requests: validated and written as desired state. This module starts, stops and moves nothing."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nfagent.catalog import Catalog
from nfagent.checking import check_configuration
from nfagent.clients import Client
from nfagent.desired_chains import DesiredChains
from nfagent.errors import ConflictError, InvalidError, UnknownError
from nfagent.model import Instance, Migration, View
from nfagent.orders import Order, Orders, Usage, with_secrets
from nfagent.protocols import Fitness
from nfagent.references import find_named, may_see
from nfagent.store import Change, Store, chains, instances, migrations
from nfagent.store.instances import Filter


@dataclass(frozen=True)
class Amendment:
    """Changes of an instance; None leaves a value unchanged, ``pin`` "" removes the pin."""

    config: dict[str, Any] | None = None
    name: str | None = None
    labels: dict[str, str] | None = None
    pin: str | None = None


class Desired:
    """Clients' requests, applied to the store.

    Args:
        store: receives the desired state.
        catalog: what can be deployed.
        fitness: of locations that requests name.

    Attributes:
        chains: likewise, of chains.

    All methods raise subclasses of `nfagent.errors.RefusedError`; their effects are on disk when they return.
    """

    def __init__(self, store: Store, catalog: Catalog, fitness: Fitness) -> None:
        self.store = store
        self.catalog = catalog
        self._fitness = fitness
        self._orders = Orders(catalog, fitness)
        self.chains = DesiredChains(store, catalog, self._orders, self.show)

    # ---- instances

    def create(self, client: Client, order: Order) -> View:
        """Accept an order for an instance."""
        client.require_change("creating an instance")
        checked = self._orders.check(client, order)
        with self.store.change() as change:
            (instance,) = self._orders.add(change, client.project, [checked])
        return View(instance, "building", None, None)

    def show(self, client: Client, reference: str) -> View:
        """Find an instance by id or by its name in the client's project; administrators may also write PROJECT/NAME."""
        found = instances.view(self.store.read, reference)
        if found is None or not may_see(client, found.instance):
            named = find_named(client, reference, "instances", partial(instances.named, self.store.read))
            found = None if named is None else instances.view(self.store.read, named.id)
        if found is None:
            raise UnknownError("instance-unknown", f"unknown instance {reference!r}")
        return found

    def page(
        self, client: Client, wanted: Filter, limit: int | None, marker: str | None, *, newest_first: bool = False
    ) -> list[View]:
        """Return instances that the client may see, after the id ``marker``; ``limit`` None: all."""
        if not client.admin:
            if wanted.location is not None:
                client.require_admin("listing by location")
            if wanted.project not in (None, client.project):
                return []
            wanted = replace(wanted, project=client.project)
        if marker is not None:
            self._check_marker(client, marker)
        try:
            return instances.views(self.store.read, wanted, limit, marker, newest_first=newest_first)
        except KeyError:
            raise _bad_marker(marker) from None

    def amend(self, client: Client, reference: str, amendment: Amendment) -> View:
        """Change an instance; apply all changes or none."""
        client.require_change("changing an instance")
        instance = self.show(client, reference).instance
        if amendment.config is not None:
            amendment = replace(amendment, config=with_secrets(amendment.config, instance.config))
        if amendment.pin is not None:
            client.require_admin("pinning an instance, or removing its pin,")
        pin = self._orders.pin(client, amendment.pin or None)
        if amendment.config is not None and amendment.config != instance.config:
            kind = self.catalog.kinds.get(instance.kind)
            if kind is not None:
                self._orders.check_files(client, kind, amendment.config, instance.config, instance.project)
                check_configuration(kind, amendment.config, len(instance.ports))
        if pin is not None and pin != instance.pin and instance.kind in self.catalog.kinds:
            config = instance.config if amendment.config is None else amendment.config
            self._orders.check_fitness(self.catalog.kinds[instance.kind], config, len(instance.ports), pin)
        with self.store.change() as change:
            instance = _current(change, instance)
            if not instance.present:
                raise ConflictError("instance-deleting", f"instance {instance.name!r} is being deleted")
            name = instance.name if amendment.name is None else amendment.name
            labels = instance.labels if amendment.labels is None else amendment.labels
            if name != instance.name:
                self._orders.check_name(change, instance.project, name)
            if (name, labels) != (instance.name, instance.labels):
                instances.describe(change, instance.id, name, labels)
            if amendment.config is not None and amendment.config != instance.config:
                instances.configure(change, instance.id, amendment.config)
            if amendment.pin is not None and pin != instance.pin:
                instances.pin(change, instance.id, pin)
        return self.show(client, instance.id)

    def resize(self, client: Client, reference: str, flavor: str) -> None:
        """Give an instance another flavor, until its owner confirms or reverts that. It restarts, without its state."""
        client.require_change("resizing an instance")
        self.catalog.flavor(flavor, "flavorRef")
        instance = self.show(client, reference).instance
        with self.store.change() as change:
            current = instances.view(change.db, instance.id)
            if current is None or current.status != "active":
                status = current.status if current else "deleting"
                raise ConflictError("instance-not-active", f"instance {instance.name!r} is {status}, not active")
            instance = current.instance
            if instance.resized_from is not None:
                detail = f"instance {instance.name!r} was resized from {instance.resized_from}; confirm or revert that"
                raise ConflictError("resize-unconfirmed", detail)
            if flavor == instance.flavor:
                raise InvalidError("flavor-same", f"instance {instance.name!r} has the flavor {flavor}", "flavorRef")
            self._orders.check_workers(change, instance, flavor)
            instances.resize(change, instance.id, flavor, instance.flavor)

    def confirm_resize(self, client: Client, reference: str, *, keep: bool) -> None:
        """Confirm a resize (``keep``), or revert it, which restarts the instance again."""
        client.require_change("confirming a resize" if keep else "reverting a resize")
        instance = self.show(client, reference).instance
        with self.store.change() as change:
            instance = _current(change, instance)
            if instance.resized_from is None:
                raise ConflictError("not-resized", f"instance {instance.name!r} has no resize to confirm or to revert")
            flavor = instance.flavor if keep else instance.resized_from
            if not keep and flavor in self.catalog.flavors:  # agent.toml may lack it by now
                self._orders.check_workers(change, instance, flavor)
            instances.resize(change, instance.id, flavor, None)

    def delete(self, client: Client, reference: str) -> View:
        """Mark an instance for deletion; repeated requests get the same answer."""
        client.require_change("deleting an instance")
        instance = self.show(client, reference).instance
        with self.store.change() as change:
            instance = _current(change, instance)
            parts = chains.through(change.db, instance.id)
            if parts:
                named = ", ".join(repr(chain.name) for chain in parts)
                detail = f"instance {instance.name!r} is part of the chain {named}; delete that first"
                raise ConflictError("instance-in-chain", detail)
            if instance.present:
                instances.give_up(change, instance.id)
        found = instances.view(self.store.read, instance.id)
        # It may have disappeared by now.
        return found or View(instance, "deleting", None, None)

    def usage(self, project: str) -> dict[str, Usage]:
        """Return a project's use of ``instances``, ``ports`` and ``workers``."""
        return self._orders.usage(self.store.read, project)

    # ---- migrations

    def migrate(self, client: Client, reference: str, target: str | None) -> Migration:
        """Request a migration to ``target``; None: to the only other location."""
        client.require_admin("migrating")
        client.require_change("migrating")
        view = self.show(client, reference)
        instance, kind = view.instance, self.catalog.kind(view.instance.kind)
        with self.store.change() as change:
            current = instances.view(change.db, instance.id)
            source = current.running if current else None
            if current is None or not current.instance.present or source is None or source.phase != "active":
                status = current.status if current else "deleting"
                raise ConflictError("instance-not-active", f"instance {instance.name!r} is {status}, not active")
            if current.migration is not None:
                detail = f"instance {instance.name!r} is already moving to {current.migration.target}"
                raise ConflictError("migration-in-progress", detail)
            goal = self._goal(instance, source.location, target)
            why = self._fitness.lacks(instance, goal)
            if why is not None:
                raise ConflictError("location-unfit", f"instance {instance.name!r} cannot run at {goal}: {why}")
            instances.aim(change, instance.id, goal)
            return migrations.request(change, instance, source.location, goal, "state" if kind.movable else "restart")

    def _goal(self, instance: Instance, source: str, target: str | None) -> str:
        others = [location for location in self.catalog.locations if location != source]
        if target is None:
            if len(others) != 1:
                detail = (
                    f"instance {instance.name!r} is at {source}; choose a target: {', '.join(others) or 'none exists'}"
                )
                raise InvalidError("target-needed", detail, "target")
            target = others[0]
        self.catalog.location(target, "target")
        if target == source:
            raise ConflictError("already-there", f"instance {instance.name!r} is already at {source}")
        if instance.pin not in (None, target):
            raise ConflictError("instance-pinned", f"instance {instance.name!r} is pinned to {instance.pin}")
        return target

    def _check_marker(self, client: Client, marker: str) -> None:
        found = instances.find(self.store.read, marker)
        if found is None or not may_see(client, found):
            raise _bad_marker(marker)


def _bad_marker(marker: str | None) -> InvalidError:
    return InvalidError("marker-unknown", f"unknown marker {marker!r}", "marker")


def _current(change: Change, instance: Instance) -> Instance:
    found = instances.find(change.db, instance.id)
    if found is None:
        raise UnknownError("instance-unknown", f"instance {instance.id!r} no longer exists")
    return found
