"""Fixed samples of servers with any number of network functions."""

from dataclasses import replace

from nfagent.dashboard.snapshot import Place, Snapshot
from nfagent.measurement import LinkUse, Load, LocationUse, Measurement, Rate
from nfagent.model import Instance, InstancePort, Migration, Running, View
from nfagent.store.migrations import Arrival
from tests.nfagent.dashboard import sample
from tests.nfagent.dashboard.sample import AT, HOST, NIC

_ROLES = ("edge-lb", "web-lb", "dns-limiter", "nat", "telemetry-probe", "tenant-firewall")
_KINDS = ("l4lb", "l7lb", "limiter", "l4lb", "probe", "limiter")
_PROJECTS = ("blue", "default", "green", "operations", "research")


def _views(number: int) -> list[View]:
    views = []
    for index in range(number):
        role = index % len(_ROLES)
        made = sample.instance(
            f"{_ROLES[role]}-{index + 1:03d}",
            index + 1,
            kind=_KINDS[role],
            project=_PROJECTS[index // 7 % len(_PROJECTS)],
            ports=(InstancePort(1000 + index, f"nf{1000 + index}", f"02:00:00:00:{index >> 8:02x}:{index & 255:02x}"),),
        )
        views.append(_view(made, index))
    return views


def _view(made: Instance, index: int) -> View:
    place = NIC if index % 4 == 3 else HOST
    if index % 41 == 13:
        return View(made, "building", None, None)
    if index % 47 == 17:
        reason = "nf: configuration: backends[0].address: expected an IPv4 address, not '10.0.0'"
        return View(made, "error", sample.running(made, place, phase="error", reason=reason), None)
    if index % 59 == 23:
        return View(made, "error", sample.running(made, place, silent=AT - 20, reason="it does not answer"), None)
    if index % 83 == 29:
        target = HOST if place == NIC else NIC
        move = sample.migration(made, 1000 + index, source=place, target=target)
        return View(made, "migrating", sample.running(made, place), move)
    return View(made, "active", sample.running(made, place), None)


def _measurement(at: float, views: list[View], beat: int) -> Measurement:
    loads = {}
    for index, view in enumerate(views):
        if view.running is None or view.running.phase == "error":
            continue
        share = (index * 37 + beat * 3) % 100 / 100
        loads[view.instance.id] = Load(share, round(share * 1000), Rate(share * 9300, share * 1e6), 17 * index)
    matrix = {
        (1000 + index, 1000 + (index * 7 + 1) % len(views)): Rate(4000 / (index + 1), 500_000 / (index + 1))
        for index in range(len(views))
    }
    links = {NIC: LinkUse(Rate(3190 + beat, 420_000), Rate(7420 - beat, 890_000), 10_000)}
    used = {HOST: LocationUse(14_020, 32_000), NIC: LocationUse(6020, 8000)}
    return Measurement(at, 1.0, matrix, 0.03, loads, links, used)


def server(number: int, beat: int = 0) -> Snapshot:
    """Return a server with this many functions; each ``beat`` has other figures."""
    views = _views(number)
    rows: list[Running] = [view.running for view in views if view.running]
    moves: list[Migration] = [view.migration for view in views if view.migration]
    history = [_measurement(AT - ago, views, beat - ago) for ago in range(40, -1, -5)]
    known = sample.server()
    return replace(
        known,
        places=(Place(HOST, True, 200), Place(NIC, False, 60)),
        views=views,
        running=rows,
        moves=[*moves, *known.moves[1:]],
        steps={},
        names={view.instance.id: view.instance.name for view in views} | dict(known.names),
        arrivals={
            view.instance.id: Arrival(view.instance.id, NIC, HOST, AT - 90 * (index + 1))
            for index, view in enumerate(views)
            if index % 9 == 4
        },
        ran=frozenset(row.instance for row in rows if row.phase == "active"),
        measured=history[-1],
        history=history,
        whys={},
    )
