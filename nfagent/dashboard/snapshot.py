"""The state at a moment, read from the store, the monitor, the decider and oneswitchd."""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nfagent.api.services import Services
from nfagent.dashboard.probe import Switches
from nfagent.errors import UnavailableError
from nfagent.locations import ONESWITCHD
from nfagent.measurement import Measurement, Step
from nfagent.model import Chain, Decision, Event, Instance, Migration, Running, View
from nfagent.monitor import day
from nfagent.store import chains, events, instances, migrations, processes
from nfagent.store.instances import Filter
from nfagent.store.migrations import Arrival

MOST_CARDS = 12
"""Network functions up to which each has a card; more have rows."""

_MIGRATIONS = 8
_EVENTS = 12
_STEPS = 100  # more than any migration has, even one resumed after crashes
_QUIET = frozenset({"placement.process", "migration.step", "figures.kept"})
"""Events not shown as news: other events and the progress say the same."""


@dataclass(frozen=True)
class Place:
    """A configured location.

    Attributes:
        slots: for processes with ports.
    """

    name: str
    is_hub: bool
    slots: int


@dataclass(frozen=True)
class Snapshot:
    """The state of everything.

    Attributes:
        at: seconds since 1970.
        running: all processes, including those about to start.
        moves: open migrations and the newest ended ones, newest first.
        steps: when each step of a migration was first written, by epoch and name, in order.
        news: the newest events, newest first.
        outages: the newest up or down event of each location and of oneswitchd, by name.
        arrivals: the newest completed migration of each instance, by its id.
        ran: ids of the instances that run or have run.
        names: names of instances by id, including deleted ones.
        measured: None: not measured yet.
        day: the last 24 hours, by the names of `nfagent.monitor.day`.
        decision: None: no decision yet.
        whys: the decider's reasons by instance id.
        free_bytes: on the store's disk.
        databases: the newest event of the database of each location, by name.
        waiting_s: for how long a change waits for that disk.
        chains: by name.
        unkept: why wishes are dropped, by the ids of their chains.
        crossing_us: latency of a PCIe link.
    """

    at: float
    places: tuple[Place, ...]
    views: list[View]
    running: list[Running]
    moves: list[Migration]
    steps: Mapping[int, Mapping[str, float]]
    news: list[Event]
    outages: Mapping[str, Event]
    arrivals: Mapping[str, Arrival]
    ran: frozenset[str]
    names: Mapping[str, str]
    switches: Switches
    measured: Measurement | None
    history: list[Measurement]
    day: Mapping[str, Sequence[Step]]
    decision: Decision | None
    whys: Mapping[str, Mapping[str, Any]]
    free_bytes: int
    databases: Mapping[str, Event] = field(default_factory=dict)
    waiting_s: float = 0.0
    chains: tuple[Chain, ...] = ()
    unkept: Mapping[str, str] = field(default_factory=dict)
    crossing_us: int = 0

    @property
    def is_crowded(self) -> bool:
        """Tell whether there are too many instances for cards."""
        return len(self.views) > MOST_CARDS


def counts_traffic(sample: Measurement) -> bool:
    """Tell whether any switch was queried: without one the matrix is empty and means nothing."""
    return bool(sample.matrix) or sample.error < 1.0


def take(known: Services, switches: Switches) -> Snapshot:
    """Read it."""
    db = known.desired.store.read
    views = instances.views(db, Filter())
    moves = _moves(db)
    news = [event for event in events.newest(db, 4 * _EVENTS) if event.type not in _QUIET][:_EVENTS]
    explained = [] if len(views) > MOST_CARDS else [view.instance for view in views]  # rows have no room for reasons
    decision, whys = _decided(known, explained)
    mentioned = [*(move.instance for move in moves), *(event.subject for event in news)]
    return Snapshot(
        at=time.time(),
        places=_places(known),
        views=views,
        running=processes.everything(db),
        moves=moves,
        steps={move.epoch: _steps(db, move) for move in moves},
        news=news,
        outages=_newest(known, "location", _place_names(known)) | _newest(known, "oneswitchd", [ONESWITCHD]),
        arrivals=migrations.arrivals(db),
        ran=_ran(db, views),
        names=_names(db, views, mentioned),
        switches=switches,
        measured=known.monitor.newest(),
        history=known.monitor.history(),
        day=_day(known, explained),
        decision=decision,
        whys=whys,
        free_bytes=known.desired.store.free_bytes,
        databases=_newest(known, "database", _place_names(known)),
        waiting_s=known.overviews.waiting_s,
        chains=tuple(chains.page(db, None, None, None)),
        unkept=known.decider.left_out(),
        crossing_us=known.config.decide.crossing_us,
    )


def take_one(known: Services, switches: Switches, view: View) -> Snapshot:
    """Read what concerns one instance."""
    db = known.desired.store.read
    instance = view.instance
    moves = migrations.page(db, instance.id, None, _MIGRATIONS, None)
    decision, whys = _decided(known, [instance])
    return Snapshot(
        at=time.time(),
        places=_places(known),
        views=[view],
        running=processes.of(db, instance.id),
        moves=moves,
        steps={move.epoch: _steps(db, move) for move in moves},
        news=[event for event in events.newest(db, 4 * _EVENTS, instance.id) if event.type not in _QUIET],
        outages={},
        arrivals=migrations.arrivals(db),
        ran=_ran(db, [view]),
        names={each.id: each.name for each in [instance]},
        switches=switches,
        measured=known.monitor.newest(),
        history=known.monitor.history(),
        day=_day(known, [instance]),
        decision=decision,
        whys=whys,
        free_bytes=known.desired.store.free_bytes,
    )


def _day(known: Services, drawn: list[Instance]) -> dict[str, Sequence[Step]]:
    names = [day.SERVER, *(day.instance_series(each.id) for each in drawn)]
    for switch in known.server.switch:
        names += [day.cpu_series(switch.name), *(day.link_series(switch.name) if switch.link else ())]
    return {name: known.monitor.day(name) for name in names}


def _places(known: Services) -> tuple[Place, ...]:
    return tuple(
        Place(switch.name, switch.link is None, len(known.config.find_location(switch.name).slot))
        for switch in known.server.switch
    )


def _moves(db: sqlite3.Connection) -> list[Migration]:
    under_way = migrations.page(db, None, "none", 1000, None)
    ended = [move for move in migrations.page(db, None, None, _MIGRATIONS, None) if move.ended is not None]
    return sorted([*under_way, *ended], key=lambda move: move.epoch, reverse=True)


def _steps(db: sqlite3.Connection, move: Migration) -> dict[str, float]:
    """Return them from the journal's events; a step that is written again started when it was first written."""
    written: dict[str, float] = {}
    for event in reversed(events.newest(db, _STEPS, str(move.epoch), "migration.step")):
        written.setdefault(str(event.payload["step"]), event.time)
    return written


def _ran(db: sqlite3.Connection, views: list[View]) -> frozenset[str]:
    active = {view.instance.id for view in views if view.running is not None and view.running.phase == "active"}
    others = [view.instance.id for view in views if view.instance.id not in active]
    return frozenset(active | events.subjects(db, "process.active", others))


def _place_names(known: Services) -> list[str]:
    return [place.name for place in _places(known)]


def _newest(known: Services, room: str, subjects: Iterable[str]) -> dict[str, Event]:
    found = {name: known.bulletin.newest(room, name) for name in subjects}
    return {name: event for name, event in found.items() if event is not None}


def _names(db: sqlite3.Connection, views: list[View], mentioned: Iterable[str]) -> dict[str, str]:
    names = {view.instance.id: view.instance.name for view in views}
    for reference in mentioned:
        if reference not in names:
            for event in events.newest(db, 1, reference, "instance."):
                if "name" in event.payload:
                    names[reference] = str(event.payload["name"])
    return names


def _decided(known: Services, wanted: list[Instance]) -> tuple[Decision | None, dict[str, Mapping[str, Any]]]:
    decider = known.decider
    try:
        decision = decider.proposal()
    except UnavailableError:
        return None, {}
    whys: dict[str, Mapping[str, Any]] = {}
    for instance in wanted:
        try:
            whys[instance.id] = decider.why(instance)
        except UnavailableError:
            continue  # newer than the decision
    return decision, whys
