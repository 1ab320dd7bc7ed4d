"""A fixed sample of a busy server, for tests of the display and for its pictures."""

import math
from dataclasses import replace
from typing import Any

from nfagent.dashboard.probe import Switches
from nfagent.dashboard.snapshot import Place, Snapshot
from nfagent.measurement import LinkUse, Load, LocationUse, Measurement, Offload, Rate, Step
from nfagent.model import Chain, Decision, Event, Instance, InstancePort, Migration, Running, View
from nfagent.monitor import day
from nfagent.store.migrations import Arrival
from server.oneswitchd.answers import BridgeState, LinkState, Status, SwitchState, VirtualPort

AT = 1_790_000_000.0
"""Monday, 21 September 2026, 14:13:20 UTC."""

HOST, NIC = "hypervisor", "snic0"

# name, kind, flavor, location, utilisation, millicores, Mb/s, flows, ports
_FUNCTIONS = [
    ("edge-lb", "l4lb", "large", NIC, 0.46, 1840, 6240.0, 48_210, (1000, 1001)),
    ("tenant-a-lb", "l4lb", "medium", HOST, 0.31, 620, 1480.0, 9_120, (1002,)),
    ("tenant-b-lb", "l4lb", "small", HOST, 0.74, 740, 890.0, 3_047, (1003,)),
    ("probe", "probe", "small", HOST, 0.04, 42, 2.6, None, (1004,)),
    ("dns-lb", "l4lb", "small", NIC, 0.18, 180, 310.0, 1_204, (1005,)),
]
_MOVING = "tenant-b-lb"
OFFLOADS = {
    "edge-lb": Offload(
        "connected", None, 12_804, 65_536, 0.93, 10**9, 10**12, {"full": 12, "rate": 0}, Rate(9000.0, 800_000.0)
    ),
}


def instance(name: str, number: int = 0, **fields: Any) -> Instance:
    """Return an instance with ids derived from its number."""
    values: dict[str, Any] = {
        "id": f"00000000-0000-4000-8000-{number:012d}",
        "name": name,
        "project": "default",
        "kind": "l4lb",
        "flavor": "small",
        "config": {},
        "labels": {},
        "pin": None,
        "target": None,
        "present": True,
        "generation": 1,
        "created": AT - 3600,
    }
    return Instance(**(values | fields))


def running(of: Instance, location: str, **fields: Any) -> Running:
    """Return an active process."""
    values: dict[str, Any] = {
        "incarnation": f"{of.id}.{location}",
        "instance": of.id,
        "role": "serving",
        "location": location,
        "slot": f"slot-{of.ports[0].number}" if of.ports else None,
        "phase": "active",
        "generation": 1,
        "since": AT - 1800,
    }
    return Running(**(values | fields))


def switches() -> Switches:
    """Return switches that are all up."""
    return Switches(
        Status(
            version="0.1.0",
            datapath_id="00000000000000a1",
            switches=(switch(HOST), switch(NIC, LinkState(hypervisor="pcie-snic0", local="pf0hpf", state="up"))),
        ),
        None,
        {number: _port(number, flow_id) for flow_id, number in enumerate(range(1000, 1006), 11)},
    )


def switch(name: str, link: LinkState | None = None, state: str = "up") -> SwitchState:
    """Return a switch whose bridges have a state."""
    bridge = BridgeState(target="unix:sock", state=state, last_error=None if state == "up" else "connection refused")
    return SwitchState(name=name, hub=link is None, virt=bridge, edge=bridge, link=link)


def _port(number: int, flow_id: int) -> VirtualPort:
    return VirtualPort(number=number, name=f"nf{number}", switch=HOST, interface="vf", flow_id=flow_id, state="up")


def migration(of: Instance, epoch: int = 8, **fields: Any) -> Migration:
    """Return an open migration."""
    values: dict[str, Any] = {
        "epoch": epoch,
        "instance": of.id,
        "project": of.project,
        "source": HOST,
        "target": NIC,
        "mode": "state",
        "step": "COMMIT",
        "requested": AT - 2.4,
        "started": AT - 2.3,
    }
    return Migration(**(values | fields))


def _measurement(at: float, ids: dict[str, str]) -> Measurement:
    wave = 1 + 0.22 * math.sin(at / 31) + 0.08 * math.sin(at / 7.3)
    loads = {
        ids[name]: Load(share, millicores, Rate(mbps * (wave if at < AT else 1), mbps * 150), flows, OFFLOADS.get(name))
        for name, _, _, _, share, millicores, mbps, flows, _ in _FUNCTIONS
    }
    scale = wave if at < AT else 1
    matrix = {(1, 1000): Rate(6240 * scale, 912_000), (1000, 2): Rate(2680 * scale, 410_000)}
    links = {NIC: LinkUse(Rate(3190 * scale, 420_000), Rate(7420 * (2 - scale), 890_000), 10_000)}
    used = {HOST: LocationUse(1402, 4000), NIC: LocationUse(2020, 8000)}
    return Measurement(at, 1.0, matrix, 0.03, loads, links, used)


def _views() -> list[View]:
    views = []
    for number, (name, kind, flavor, location, *_, ports) in enumerate(_FUNCTIONS, 1):
        made = instance(name, number, kind=kind, flavor=flavor, ports=tuple(_wired(port) for port in ports))
        move = migration(made) if name == _MOVING else None
        views.append(View(made, "migrating" if move else "active", running(made, location), move))
    return views


def _wired(number: int) -> InstancePort:
    return InstancePort(number, f"nf{number}", f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")


_DONE = [("prepare", 0.012), ("start", 0.236), ("rules", 0.062), ("hold", 0.001), ("precopy", 0.841)]
_DONE += [("freeze", 0.001_63)]


def parts() -> list[dict[str, Any]]:
    """Return the steps in the report of a migration that has reached COMMIT."""
    told, at = [], AT - 2.3
    for name, seconds in _DONE:
        told.append({"step": name, "at": at, "us": round(seconds * 1e6)})
        at += seconds
    return told


def _past(views: list[View]) -> list[Migration]:
    edge, dns = views[0].instance, views[4].instance
    good = {"mode": "memfd", "freeze_us": 412, "state_bytes": 18_400_000, "relayed": 96, "lost_state": None}
    copied = {"mode": "copy", "freeze_us": 1730, "state_bytes": 2_100_000, "relayed": 31, "lost_state": None}
    lost = {"mode": "restart", "lost_state": {"why": "snic0 went down", "flows": 1204, "instances": [dns.id]}}
    rolled = {"mode": "copy", "rolled_back_at": "precopy", "lost_state": None}
    return [
        migration(edge, 7, step="done", started=AT - 641.9, ended=AT - 640.4, outcome="done", report=good),
        migration(dns, 6, step="done", started=AT - 1301.2, ended=AT - 1300.1, outcome="done", report=copied),
        migration(
            dns,
            5,
            step="done",
            mode="restart",
            source=NIC,
            target=HOST,
            started=AT - 2105,
            ended=AT - 2102.6,
            outcome="done",
            report=lost,
        ),
        migration(
            dns,
            4,
            step="precopy",
            started=AT - 2411,
            ended=AT - 2409.2,
            outcome="rolled-back",
            report=rolled,
            reason="the new instance did not answer in 1 s",
        ),
    ]


def _whys(views: list[View]) -> dict[str, dict[str, Any]]:
    said = {
        "edge-lb": (
            "edge-lb is on snic0: the host would cost the host 1,840 more",
            {"location": HOST, "host_cost": 1840, "blocked_by": []},
        ),
        "tenant-a-lb": (
            "tenant-a-lb is on hypervisor: snic0 would save 620 there, but PCIe snic0 up would be 10,900 of 10,000",
            {"location": NIC, "host_cost": -620,
             "blocked_by": [{"limit": "PCIe snic0 up", "used": 10_900, "allowed": 10_000}]},
        ),
        "tenant-b-lb": (
            "tenant-b-lb is to be on snic0: it saves 740 on the host, which pays for the move within 30 s",
            {"location": HOST, "host_cost": 740, "blocked_by": []},
        ),
        "probe": ("probe is on hypervisor: it has no other mode", None),
        "dns-lb": ("dns-lb is on snic0: the host would cost the host 180 more", {"location": HOST, "host_cost": 180}),
    }  # fmt: skip
    binding = [{"limit": "PCIe snic0 up", "used": 9_800, "allowed": 10_000}]
    return {
        view.instance.id: {
            "text": said[view.instance.name][0],
            "runner_up": said[view.instance.name][1],
            "binding": binding if view.instance.name == "tenant-a-lb" else [],
        }
        for view in views
    }


def _news(views: list[View]) -> list[Event]:
    moving, edge, dns = (views[number].instance.id for number in (2, 0, 4))
    told = [
        (2.4, "migration.requested", "8", {"instance": moving, "source": HOST, "target": NIC}),
        (2.5, "placement.decided", "31", {"decision": 31, "moves": [moving]}),
        (640.4, "migration.ended", "7", {"instance": edge, "source": HOST, "target": NIC, "outcome": "done"}),
        (1300.1, "migration.ended", "6", {"instance": dns, "source": HOST, "target": NIC, "outcome": "done"}),
        (1310.0, "location.up", NIC, {"location": NIC}),
        (2102.6, "instance.recovered", dns, {"reason": "on hypervisor, with 1,204 flows lost"}),
        (2107.0, "location.down", NIC, {"location": NIC, "reason": "its PCIe link is down"}),
        (2409.2, "migration.ended", "4", {"instance": dns, "source": HOST, "target": NIC, "outcome": "rolled-back",
                                          "reason": "the new instance did not answer in 1 s"}),
        (3300.0, "process.active", dns, {"id": dns, "phase": "active"}),
        (3301.0, "instance.created", dns, {"id": dns, "name": "dns-lb", "kind": "l4lb"}),
    ]  # fmt: skip
    return [
        Event(900 - number, AT - ago, kind, subject, None, payload)
        for number, (ago, kind, subject, payload) in enumerate(told)
    ]


def server() -> Snapshot:
    """Return five network functions, one of them moving to the smart NIC."""
    views = _views()
    names = {view.instance.id: view.instance.name for view in views}
    edge, moving = views[0].instance, views[2]
    assert moving.migration
    history = [_measurement(AT - ago, {name: key for key, name in names.items()}) for ago in range(299, -1, -1)]
    rows = [view.running for view in views if view.running]
    incoming = running(moving.instance, NIC, role="incoming", slot="slot-in", incarnation="incoming")
    return Snapshot(
        at=AT,
        places=(Place(HOST, True, 6), Place(NIC, False, 4)),
        views=views,
        running=[*rows, incoming],
        moves=[replace(moving.migration, report={"mode": "copy", "steps": parts()}), *_past(views)],
        steps={8: {"prepare": AT - 2.3, "precopy": AT - 1.98, "freeze": AT - 1.15, "COMMIT": AT - 1.14}},
        news=_news(views),
        outages={},
        arrivals={edge.id: Arrival(edge.id, HOST, NIC, AT - 640.4)},
        ran=frozenset(names),
        names=names,
        switches=switches(),
        measured=history[-1],
        history=history,
        day=_day(history[-1]),
        decision=Decision(31, AT - 2.5, {}, {}, _EXPLANATION, (moving.instance.id,), None),
        whys=_whys(views),
        free_bytes=1 << 40,
    )


def _day(measured: Measurement) -> dict[str, tuple[Step, ...]]:
    """Return 24 hours of the server's traffic, of its links and CPUs, with a gap in the night."""
    first = int(AT - day.DAY_S) // day.STEP_S * day.STEP_S
    steps = [at for at in range(first, int(AT), day.STEP_S) if not first + 30_000 < at < first + 36_000]

    def wave(most: float) -> tuple[Step, ...]:
        return tuple(Step(at, most * (0.6 + 0.4 * math.sin(at / 13_000)), most) for at in steps)

    series = {day.SERVER: wave(9000), day.cpu_series(HOST): wave(1400), day.cpu_series(NIC): wave(2100)}
    series |= dict(zip(day.link_series(NIC), (wave(3200), wave(7400)), strict=True))
    return series | {day.instance_series(key): wave(load.traffic.mbps) for key, load in measured.instances.items()}


_EXPLANATION = {
    "feasible": True,
    "reason": "the host saves 740 within 30 s, more than the move costs",
    "host_millicores": 662,
    "proven": True,
}


def unmeasured() -> Snapshot:
    """Return the same server before any measurement or decision."""
    return replace(server(), measured=None, history=[], day={}, decision=None, whys={})


def with_chain(known: Snapshot) -> Snapshot:
    """Return the server with a chain over host and sNIC, whose bound is ignored."""
    ids = {view.instance.name: view.instance.id for view in known.views}
    chain = Chain("id-shop", "shop", "default", (ids["edge-lb"], ids["tenant-a-lb"], ids["dns-lb"]), 40, AT)
    return replace(known, chains=(chain,), crossing_us=10, unkept={chain.id: "no placement satisfies it"})
