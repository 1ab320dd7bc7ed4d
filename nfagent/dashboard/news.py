"""First information for operators: faults, figures of the whole server, recent events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from nfagent.dashboard import figures, lanes, progress
from nfagent.dashboard.course import Course, course
from nfagent.dashboard.shares import Bar
from nfagent.dashboard.snapshot import Snapshot, counts_traffic
from nfagent.databases import DOWN, UP
from nfagent.faults import STALLED_S, disk_fault, faults
from nfagent.locations import ONESWITCHD
from nfagent.model import Event
from nfagent.monitor import day

Gravity = Literal["critical", "warning", "info", "calm"]

_NAMED = 5
_STALE_S = 10.0
_STALE_WINDOWS = 5


@dataclass(frozen=True)
class Notice:
    """A line of the banner; ``function``: the id of the function that it is about."""

    gravity: Gravity
    title: str
    text: str
    function: str | None = None


@dataclass(frozen=True)
class Tile:
    """A figure of the whole server; ``value`` None: not measured yet."""

    label: str
    value: str | None
    note: str
    bar: Bar | None = None
    course: Course | None = None


@dataclass(frozen=True)
class News:
    """An event, in words."""

    id: int
    at: str
    stamp: str
    about: str
    text: str
    gravity: Gravity


def notices(known: Snapshot) -> tuple[Notice, ...]:
    """Return the faults, the worst first; never empty: it also says that no faults are known."""
    found = [
        *_disk(known),
        *_outages(known),
        *_switches(known),
        *_databases(known),
        *functions_at_fault(known),
        *_deciding(known),
        *_measuring(known),
    ]
    if found:
        return tuple(found)
    places = " and ".join(place.name for place in known.places)
    return (Notice("calm", "No faults known", f"{places} {'are' if len(known.places) > 1 else 'is'} up"),)


def _disk(known: Snapshot) -> list[Notice]:
    found = disk_fault(known.free_bytes, known.waiting_s)
    if found is None:
        return []
    if known.waiting_s > STALLED_S:
        return [Notice(found[0], "The disk does not answer", found[1])]
    return [Notice(found[0], "The disk is full" if found[0] == "critical" else "The disk fills", found[1])]


def _outages(known: Snapshot) -> list[Notice]:
    down, doubtful = [], []
    for place in known.places:
        state, reason = lanes.condition(known, place)
        if state == "down":
            outage = known.outages.get(place.name)
            told = outage is not None and outage.type == "location.down"
            since = f" since {figures.clock(outage.time, known.at)}" if outage and told else ""
            down.append(Notice("critical", f"{place.name} is down{since}", reason or ""))
        elif state != "up" and known.switches.status is not None:
            doubtful.append(Notice("warning", f"{place.name} is {state}", reason or ""))
    return down + doubtful


def functions_at_fault(known: Snapshot) -> tuple[Notice, ...]:
    """Return the faults of functions, the worst first."""
    found = faults(known.views, known.at)
    shown = [
        Notice(each.gravity, each.name, f"{each.text} (since {figures.clock(each.since, known.at)})", each.instance)
        for each in found[:_NAMED]
    ]
    more = len(found) - len(shown)
    return (*shown, Notice("warning", "More network functions have faults", f"{more} more")) if more else tuple(shown)


def _switches(known: Snapshot) -> list[Notice]:
    outage = known.outages.get(ONESWITCHD)
    if outage is not None and outage.type == "oneswitchd.down":
        why = str(outage.payload.get("reason") or "oneswitchd does not answer")
    elif known.switches.status is not None:
        return []
    else:
        why = known.switches.reason or "oneswitchd was not queried"
    return [Notice("warning", "The state of the switches and their links is unknown", why)]


def _databases(known: Snapshot) -> list[Notice]:
    down = {name: event.payload for name, event in known.databases.items() if event.type == DOWN}
    return [
        Notice("warning", f"Nothing can be started or moved at {name}", str(payload.get("reason") or ""))
        for name, payload in down.items()
    ]


def _deciding(known: Snapshot) -> list[Notice]:
    said = known.decision.explanation if known.decision else {}
    if said.get("feasible") is not False:
        return _left_out(said.get("left_out") or [])
    return [Notice("warning", "No placement satisfies all limits", str(said.get("reason") or ""))]


def _left_out(wishes: Sequence[Mapping[str, Any]]) -> list[Notice]:
    if not wishes:
        return []
    named = "; ".join(
        f"{each['what']} {each['name']} of {each['project']}: {each['reason']}" for each in wishes[:_NAMED]
    )
    more = f" and {len(wishes) - _NAMED} more" if len(wishes) > _NAMED else ""
    return [Notice("warning", "Requirements of tenants are not satisfied", named + more)]


def placement(known: Snapshot) -> str:
    """Return the last decision, in a sentence."""
    decision = known.decision
    if decision is None:
        return "no placement decision yet"
    said = decision.explanation
    words = f"decided {figures.clock(decision.decided, known.at)}"
    if said.get("reason"):
        words += f": {said['reason']}"
    cost = said.get("host_millicores")
    if isinstance(cost, int):
        words += f"; {cost:,} millicores on the host" + (", proven minimal" if said.get("proven") else "")
    return words


def _measuring(known: Snapshot) -> list[Notice]:
    measured = known.measured
    if measured is None:
        text = "loads and rates are unknown until the first measurement is complete"
        return [Notice("info", "Not measured yet", text)]
    if is_stale(known):
        text = f"the figures date from {figures.clock(measured.at, known.at)} and may be outdated"
        return [Notice("warning", "Measuring has stopped", text)]
    if not counts_traffic(measured):
        return [Notice("info", "Traffic is not measured", "no switch reports its counters")]
    return []


def is_stale(known: Snapshot) -> bool:
    """Tell whether the newest measurement is outdated."""
    measured = known.measured
    return measured is not None and known.at - measured.at > max(_STALE_S, _STALE_WINDOWS * measured.window_s)


def tiles(known: Snapshot) -> tuple[Tile, ...]:
    """The figures."""
    return (_functions(known), _traffic(known), *_cpu(known), _migrations(known))


def _functions(known: Snapshot) -> Tile:
    counted: dict[str, int] = {}
    for view in known.views:
        counted[view.status] = counted.get(view.status, 0) + 1
    parts = [f"{number} {status}" for status, number in sorted(counted.items())]
    return Tile("Network functions", str(len(known.views)), ", ".join(parts) or "none deployed")


def _traffic(known: Snapshot) -> Tile:
    label = "Traffic through the server"
    if known.measured is None or not counts_traffic(known.measured):
        return Tile(label, None, "")
    counted = [each for each in known.history if counts_traffic(each)]
    samples = [(each.at, sum(rate.mbps for rate in each.matrix.values())) for each in counted]
    now = sum(rate.mbps for rate in known.measured.matrix.values())
    packets = sum(rate.pps for rate in known.measured.matrix.values())
    return Tile(
        label,
        figures.rate(now),
        f"{figures.count(round(packets))} packets/s",
        course=course(known, day.SERVER, samples),
    )


def _cpu(known: Snapshot) -> list[Tile]:
    hubs = [place.name for place in known.places if place.is_hub]
    nics = [place.name for place in known.places if not place.is_hub]
    found = [_cores(known, "Host CPU for functions", hubs)]
    if nics:
        found.append(_cores(known, "Smart NIC CPU" if len(nics) == 1 else "Smart NICs' CPU", nics))
    return found


def _cores(known: Snapshot, label: str, names: list[str]) -> Tile:
    measured = known.measured
    uses = [measured.locations[name] for name in names if name in measured.locations] if measured else []
    if not uses:
        return Tile(label, None, "")
    used, capacity = sum(use.millicores for use in uses), sum(use.capacity_millicores for use in uses)
    note = f"of {figures.cores(capacity)} cores"
    shown = course(known, day.cpu_series(names[0]), [], capacity) if len(names) == 1 else None
    return Tile(label, figures.cores(used), note, bar=Bar.of(used, capacity), course=shown)


def _migrations(known: Snapshot) -> Tile:
    open_ones = sum(move.ended is None for move in known.moves)
    ended = progress.past(known)
    outage = next((each.outage for each in ended if each.outage), None)
    note = f"last outage {outage}" if outage else f"{len(ended)} recently" if ended else "none so far"
    return Tile("Migrations in progress", str(open_ones), note)


def events(known: Snapshot) -> tuple[News, ...]:
    """Return the newest events first."""
    told = [_news(known, event) for event in known.news]
    # Starting a process writes two events, before and after; show one.
    changed = [one for one, older in pairwise(told) if not _is_same(one, older)]
    return (*changed, *told[-1:])


def _is_same(one: News, other: News) -> bool:
    return (one.about, one.text, one.at) == (other.about, other.text, other.at)


def _news(known: Snapshot, event: Event) -> News:
    payload = event.payload
    tell = _TOLD.get(event.type)
    is_placement = event.type.startswith("placement.")  # its subject is the number of a decision
    about = "placement" if is_placement else str(payload.get("instance") or event.subject)
    return News(
        id=event.id,
        at=figures.clock(event.time, known.at),
        stamp=figures.stamp(event.time),
        about=known.names.get(about) or str(payload.get("name") or about[:24]),
        text=tell(payload) if tell else event.type,
        gravity=_gravity(event),
    )


_WARNINGS = ("placement.infeasible", "oneswitchd.down", "migration.overdue", DOWN)


def _gravity(event: Event) -> Gravity:
    if event.type in ("process.error", "process.silent", "location.down") or event.payload.get("outcome") == "failed":
        return "critical"
    if (
        event.type in ("placement.infeasible", "oneswitchd.down", "migration.overdue", DOWN)
        or event.payload.get("outcome") == "rolled-back"
    ):
        return "warning"
    return "calm"


def _place(payload: Mapping[str, Any]) -> str:
    if payload.get("pin"):
        return f"pinned to {payload['pin']}"
    return f"wanted at {payload['target']}" if payload.get("target") else "free to run anywhere"


def _to_move(payload: Mapping[str, Any]) -> str:
    number = len(payload.get("moves") or ())
    return f"{number} to move" if number else "all stay where they are"


def _because(words: str, payload: Mapping[str, Any]) -> str:
    return f"{words}: {payload['reason']}" if payload.get("reason") else words


_TOLD: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "instance.created": lambda payload: f"created, a {payload.get('kind')}",
    "instance.resized": lambda payload: f"got the size {payload.get('flavor')}",
    "instance.configured": lambda payload: f"got configuration {payload.get('generation')}",
    "instance.described": lambda _: "renamed or labelled",
    "instance.pinned": _place,
    "instance.aimed": _place,
    "instance.deleting": lambda _: "deletion requested",
    "instance.deleted": lambda _: "deleted",
    "instance.recovered": lambda payload: _because("recovered", payload),
    "process.starting": lambda _: "starting",
    "process.active": lambda _: "active",
    "process.stopping": lambda _: "stopping",
    "process.error": lambda payload: _because("error", payload),
    "process.silent": lambda payload: str(payload.get("reason") or "its process does not answer"),
    "process.gone": lambda _: "its process has ended",
    "migration.requested": lambda payload: f"move requested from {payload.get('source')} to {payload.get('target')}",
    "migration.ended": lambda payload: _because(
        f"move from {payload.get('source')} to {payload.get('target')}: {payload.get('outcome')}", payload
    ),
    "migration.overdue": lambda payload: _because("its move takes too long", payload),
    "placement.decided": lambda payload: f"decision {payload.get('decision')}: {_to_move(payload)}",
    "placement.ended": lambda payload: f"decision {payload.get('decision')}: {payload.get('outcome')}",
    "placement.infeasible": lambda payload: _because("no placement satisfies all limits", payload),
    "chain.created": lambda _: "chain created",
    "chain.deleting": lambda _: "deletion of the chain requested",
    "chain.deleted": lambda _: "chain deleted",
    "chain.unkept": lambda payload: _because(f"the bound of chain {payload.get('name')} is ignored", payload),
    "chain.kept": lambda payload: f"the bound of chain {payload.get('name')} is satisfied again",
    "apart.unkept": lambda payload: _because(f"instances labelled {payload.get('name')} are not kept apart", payload),
    "apart.kept": lambda payload: f"instances labelled {payload.get('name')} are kept apart again",
    "placement.feasible": lambda _: "all limits can be satisfied again",
    "location.down": lambda payload: _because("down", payload),
    "location.up": lambda _: "up again",
    DOWN: lambda payload: _because("nothing can be started or moved there", payload),
    UP: lambda _: "functions can be started and moved there again",
    "oneswitchd.down": lambda payload: _because("does not answer", payload),
    "oneswitchd.up": lambda _: "answers again",
}
