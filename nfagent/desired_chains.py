"""Clients' requests for chains: validated and written as desired state."""

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from nfagent.catalog import Catalog
from nfagent.clients import Client
from nfagent.errors import ConflictError, InvalidError, UnknownError
from nfagent.model import PORT_HOP, Chain, View
from nfagent.orders import Checked, Order, Orders, check_room
from nfagent.references import find_named, may_see
from nfagent.store import Change, Store, chains, instances


@dataclass(frozen=True)
class ChainOrder:
    """A requested chain.

    Attributes:
        hops: references of instances, ports (``port:N``), and orders of instances that the chain will own.
        latency_us: the bound; None: there is none.
    """

    name: str
    hops: tuple[str | Order, ...]
    latency_us: int | None = None


class DesiredChains:
    """Clients' requests for chains, applied to the store; see `nfagent.desired.Desired`.

    Args:
        store: receives the desired state.
        catalog: what can be deployed.
        orders: checks and writes the instances of chains.
        instance: finds an instance that a client refers to.
    """

    def __init__(self, store: Store, catalog: Catalog, orders: Orders, instance: Callable[[Client, str], View]) -> None:
        self._store = store
        self._catalog = catalog
        self._orders = orders
        self._instance = instance

    def create(self, client: Client, order: ChainOrder) -> Chain:
        """Accept an order for a chain together with its instances, or refuse all of it."""
        client.require_change("creating a chain")
        _check_names(order)
        checked = {
            index: self._checked(client, hop, index) for index, hop in enumerate(order.hops) if isinstance(hop, Order)
        }
        with self._store.change() as change:
            self._check_name(change, client.project, order.name)
            own = chains.page(change.db, client.project, None, None)
            check_room(client.project, "chains", len(own), 1, self._catalog.quota.chains)
            found = {
                index: self._hop(client, hop, index) for index, hop in enumerate(order.hops) if isinstance(hop, str)
            }
            made = self._orders.add(change, client.project, list(checked.values()))
            owned = {index: instance.id for index, instance in zip(checked, made, strict=True)}
            hops = tuple((found | owned)[index] for index in range(len(order.hops)))
            chain = Chain(
                str(uuid.uuid4()),
                order.name,
                client.project,
                hops,
                order.latency_us,
                time.time(),
                tuple(owned.values()),
            )
            chains.add(change, chain)
        return chain

    def find(self, client: Client, reference: str) -> Chain:
        """Find a chain by id, or by name as instances are found."""
        found = chains.find(self._store.read, reference)
        if found is None or not may_see(client, found):
            found = find_named(client, reference, "chains", partial(chains.named, self._store.read))
        if found is None:
            raise UnknownError("chain-unknown", f"unknown chain {reference!r}")
        return found

    def page(self, client: Client, limit: int, marker: str | None) -> list[Chain]:
        """Return a page of the chains that the client may see, by name."""
        after = None if marker is None else chains.find(self._store.read, marker)
        if marker is not None and (after is None or not may_see(client, after)):
            raise InvalidError("marker-unknown", f"unknown marker {marker!r}", "marker")
        return chains.page(self._store.read, None if client.admin else client.project, limit, marker)

    def delete(self, client: Client, reference: str) -> Chain:
        """Delete a chain, and mark the instances that were ordered with it for deletion."""
        client.require_change("deleting a chain")
        identity = self.find(client, reference).id
        with self._store.change() as change:
            chain = chains.find(change.db, identity)
            if chain is None:
                raise UnknownError("chain-unknown", f"chain {identity!r} no longer exists")
            if not chain.present:
                return chain
            owned = [found for each in chain.owned if (found := instances.find(change.db, each)) is not None]
            for instance in owned:
                others = [each for each in chains.through(change.db, instance.id) if each.id != chain.id]
                if others:
                    named = ", ".join(repr(each.name) for each in others)
                    detail = f"instance {instance.name!r} of it is part of the chain {named}, too; delete that first"
                    raise ConflictError("instance-in-chain", detail)
            if not owned:
                chains.remove(change, chain)
            else:
                chains.give_up(change, chain)
            for instance in owned:
                if instance.present:
                    instances.give_up(change, instance.id)
        return replace(chain, present=False)

    def _check_name(self, change: Change, project: str, name: str) -> None:
        for holder in chains.named(change.db, name, project):
            state = "already exists" if holder.present else "is still being deleted"
            raise ConflictError("name-taken", f"a chain {name!r} {state}")

    def _checked(self, client: Client, order: Order, index: int) -> Checked:
        try:
            return self._orders.check(client, order)
        except InvalidError as error:
            field = f"hops.{index}.function.{error.field}"
            raise InvalidError(error.code, f"instance {order.name!r}: {error.detail}", field) from None

    def _hop(self, client: Client, hop: str, index: int) -> str:
        if hop.startswith(PORT_HOP):
            return hop
        try:
            instance = self._instance(client, hop).instance
        except (UnknownError, ConflictError) as error:
            raise InvalidError(error.code, error.detail, f"hops.{index}") from None
        if not instance.present:
            raise InvalidError("instance-deleting", f"instance {instance.name!r} is being deleted", f"hops.{index}")
        return instance.id


def _check_names(order: ChainOrder) -> None:
    count = Counter(hop.name for hop in order.hops if isinstance(hop, Order))
    for index, hop in enumerate(order.hops):
        if isinstance(hop, Order) and count[hop.name] > 1:
            detail = f"{count[hop.name]} instances of the chain are named {hop.name!r}; give each a name of its own"
            raise InvalidError("name-twice", detail, f"hops.{index}.function.name")
