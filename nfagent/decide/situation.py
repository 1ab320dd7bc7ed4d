"""The current situation: a placement problem without its traffic."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.model import PORT_HOP, Chain, Instance, View
from nfagent.monitor.layout import Layout

APART = "apart"
"""Label: instances of one project with the same value do not share an sNIC."""

Lacks = Callable[[Instance, str], str | None]
"""Returns what a location lacks for an instance, in words; see `nfagent.protocols.Fitness`."""

_STATE = 1
_RESTART = 5  # a restart interrupts service, so its gain must be larger


@dataclass(frozen=True)
class Function:
    """A running instance.

    Attributes:
        instance: its id.
        name: in the problem and for people: its name, preceded by its project unless that is the only one.
        location: its location, or its destination.
        allowed: where it may run; if one, it stays there.
        fixed: why it stays, in words; None: it may move.
        unfit: what locations lack that it needs, in words, by location.
    """

    instance: str
    name: str
    kind: str
    ports: int
    memory_mb: int
    location: str
    allowed: tuple[str, ...]
    state_cost: int
    fixed: str | None
    unfit: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Functions of a project that must not share an sNIC.

    Attributes:
        label: their value of `APART`.
        created: creation time of the youngest of them.
        pairs: pairs of their names.
    """

    project: str
    label: str
    created: float
    pairs: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Return the unique key of this group."""
        return f"{APART}:{self.project}:{self.label}"


@dataclass(frozen=True)
class Situation:
    """The server.

    Attributes:
        locations: the hypervisor first, then the sNICs: their indices are the problem's locations.
        fixed: switch by name, of the vertices that cannot move: ports that do not belong to instances, and switches
            that run the pipelines of other switches' ports.
        vertices: name by virtual port.
        detours: name of the executing switch's vertex by virtual port, if that is not the port's home.
        chains: with their hops as vertices, and a unique name.
        apart: groups of functions that must not share an sNIC.
        down: locations where nothing can be started now.
    """

    locations: tuple[str, ...]
    capacity: Mapping[str, Capacity]
    functions: tuple[Function, ...]
    fixed: Mapping[str, str]
    vertices: Mapping[int, str]
    detours: Mapping[int, str]
    chains: tuple[Chain, ...]
    apart: tuple[Group, ...]
    down: frozenset[str]

    def function(self, instance: str) -> Function | None:
        """Return the function of an instance."""
        return next((each for each in self.functions if each.instance == instance), None)

    def current(self) -> dict[str, int]:
        """Return the placement as `placement` expects it."""
        return {each.name: self.locations.index(each.location) for each in self.functions}

    def narrowed(self, pins: Mapping[str, str], without: Iterable[str]) -> "Situation":
        """Return the situation with some instances pinned and some absent; by id."""
        gone = set(without)
        kept = tuple(_pinned(each, pins) for each in self.functions if each.instance not in gone)
        names = {each.name for each in kept} | set(self.fixed)
        return replace(
            self,
            functions=kept,
            vertices={port: name for port, name in self.vertices.items() if name in names},
            chains=tuple(chain for chain in self.chains if names.issuperset(chain.hops)),
            apart=tuple(
                replace(group, pairs=tuple(pair for pair in group.pairs if names.issuperset(pair)))
                for group in self.apart
            ),
        )


def _pinned(function: Function, pins: Mapping[str, str]) -> Function:
    pin = pins.get(function.instance)
    return function if pin is None else replace(function, allowed=(pin,), fixed=f"it is hypothetically pinned to {pin}")


def situation(
    views: Iterable[View],
    chains: Iterable[Chain],
    catalog: Catalog,
    capacity: Mapping[str, Capacity],
    layout: Layout,
    down: frozenset[str],
    held: Mapping[str, str],
    lacks: Lacks,
) -> Situation:
    """Collect the current situation.

    Args:
        views: of all instances.
        chains: all.
        catalog: of kinds and flavors.
        capacity: by location, the hypervisor first.
        layout: of the ports.
        down: locations where nothing can be started.
        held: reasons why instances stay for now, by id.
        lacks: returns what a location lacks for an instance.
    """
    locations = tuple(capacity)
    running = [view for view in views if _location(view) in capacity and view.instance.present]
    names = _names([view.instance for view in running])
    maker = _Maker(catalog, capacity, down, held, lacks)
    functions = tuple(maker.function(view, names[view.instance.id]) for view in running)
    vertices = {port.number: names[view.instance.id] for view in running for port in view.instance.ports}
    fixed = {}
    for number, switch in layout.home.items():
        if number not in vertices and switch in capacity:
            vertices[number] = f"{PORT_HOP}{number}"
            fixed[vertices[number]] = switch
    detours = {}
    for number, switch in layout.executor.items():
        if layout.home.get(number) != switch and switch in capacity:
            detours[number] = f"switch:{switch}"
            fixed[detours[number]] = switch
    return Situation(
        locations,
        dict(capacity),
        functions,
        fixed,
        vertices,
        detours,
        tuple(_chains(chains, names, fixed)),
        tuple(_apart(running, functions)),
        down,
    )


def _location(view: View) -> str:
    """Return an instance's location or target; "" if it has neither."""
    if view.migration is not None:
        return view.migration.target
    if view.running is None or view.running.phase == "error":
        return ""
    wanted = view.instance.pin or view.instance.target
    return wanted or view.running.location


def _names(instances: Iterable[Instance]) -> dict[str, str]:
    found = list(instances)
    count = Counter(instance.name for instance in found)
    return {each.id: each.name if count[each.name] == 1 else f"{each.project}/{each.name}" for each in found}


class _Maker:
    """Convert instances to functions."""

    def __init__(
        self,
        catalog: Catalog,
        capacity: Mapping[str, Capacity],
        down: frozenset[str],
        held: Mapping[str, str],
        lacks: Lacks,
    ) -> None:
        self._catalog, self._capacity, self._down, self._held, self._lacks = catalog, capacity, down, held, lacks

    def function(self, view: View, name: str) -> Function:
        instance, location = view.instance, _location(view)
        flavor = self._catalog.flavors.get(instance.flavor)
        kind = self._catalog.kinds.get(instance.kind)
        movable = kind is not None and kind.movable
        fixed = self._fixed(view, location)
        unfit = self._unfit(instance)
        allowed = (location,) if fixed else self._allowed(instance, location, unfit)
        if len(allowed) == 1 and fixed is None:
            needs = "".join(f"; {why}" for name, why in unfit.items() if name != location)
            fixed = f"no other location is up and has a slot for it{needs}"
        return Function(
            instance=instance.id,
            name=name,
            kind=instance.kind,
            ports=len(instance.ports),
            memory_mb=flavor.memory_mb if flavor else 0,
            location=location,
            allowed=allowed,
            state_cost=_STATE if movable else _RESTART,
            fixed=fixed,
            unfit=unfit,
        )

    def _fixed(self, view: View, location: str) -> str | None:
        instance = view.instance
        if instance.pin is not None:
            runs_there = view.running is not None and view.running.location == instance.pin
            return f"it is pinned to {instance.pin}" + ("" if runs_there else ", where it is about to move")
        if view.migration is not None:
            return f"it is moving to {location}"
        if view.running is None or view.running.phase != "active":
            return "it is starting"
        if view.running.location != location:
            return f"it is wanted at {location} and about to move there"
        if location in self._down:
            return f"{location} is down; the plan waits until it is back or the instance has been recovered elsewhere"
        if instance.id in self._held:
            return self._held[instance.id]
        if instance.kind not in self._catalog.kinds:
            return f"agent.toml no longer has the kind {instance.kind!r}"
        return None

    def _unfit(self, instance: Instance) -> dict[str, str]:
        """Return what locations lack, by location."""
        found = {name: self._lacks(instance, name) for name in self._capacity}
        return {name: why for name, why in found.items() if why is not None}

    def _allowed(self, instance: Instance, location: str, unfit: Mapping[str, str]) -> tuple[str, ...]:
        fit = tuple(
            name
            for name, capacity in self._capacity.items()
            # Where it runs it has what it needs, even if it could not start there again.
            if name not in self._down
            and fits(capacity, len(instance.ports))
            and (name not in unfit or name == location)
        )
        return fit or (location,)


def fits(capacity: Capacity, ports: int, taken: Collection[str] = ()) -> bool:
    """Return whether a location has a free slot with ``ports`` interfaces."""
    return ports == 0 or any(wires >= ports for name, wires in capacity.slots.items() if name not in taken)


def _chains(chains: Iterable[Chain], names: Mapping[str, str], fixed: Mapping[str, str]) -> Iterable[Chain]:
    """Return the chains with a bound whose hops all exist."""
    found = list(chains)
    count = Counter(chain.name for chain in found)
    for chain in found:
        hops = tuple(hop if hop in fixed else names.get(hop, "") for hop in chain.hops)
        if chain.latency_us is not None and all(hops):
            name = chain.name if count[chain.name] == 1 else f"{chain.project}/{chain.name}"
            yield replace(chain, hops=hops, name=name)


def _apart(running: Iterable[View], functions: Iterable[Function]) -> Iterable[Group]:
    groups: dict[tuple[str, str], list[tuple[float, Function]]] = {}
    for view, function in zip(running, functions, strict=True):
        instance = view.instance
        if APART in instance.labels:
            members = groups.setdefault((instance.project, instance.labels[APART]), [])
            members.append((instance.created, function))
    for (project, label), members in groups.items():
        # Pins take precedence: two functions that an operator pinned to one sNIC stay there.
        pairs = tuple(
            (one.name, other.name)
            for (_, one), (_, other) in combinations(members, 2)
            if not (one.allowed == other.allowed and len(one.allowed) == 1)
        )
        if pairs:
            yield Group(project, label, max(created for created, _ in members), pairs)
