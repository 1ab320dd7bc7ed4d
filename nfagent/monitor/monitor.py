"""Measures periodically: turns counters of switches and instances into samples."""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.errors import DiskFullError
from nfagent.measurement import Coefficient, LinkTotals, LinkUse, Load, LocationUse, Measurement, Rate, Step
from nfagent.monitor.day import Day
from nfagent.monitor.instance_load import Counted, LoadProbe, load
from nfagent.monitor.layout import Layout
from nfagent.monitor.learning import Learner
from nfagent.monitor.matrix import PortRates, Snapshot, Traffic, attribute, port_rates, relative_error
from nfagent.monitor.port_counters import PortCounters
from nfagent.monitor.subjects import Subject, subjects
from nfagent.monitor.switches import SwitchProbe
from nfagent.store import Store, coefficients
from server.config import ServerConfig
from server.errors import ServerError, ToolError
from server.oneswitchd.answers import VirtualPort

_log = logging.getLogger(__name__)

HISTORY_S = 300.0
_SETTLED_S = 3.0  # learn nothing from a process's first seconds
_KEEP_S = 60.0
_STOP_S = 10.0

_NONE = Rate(0.0, 0.0)


@dataclass
class _Look:
    """All counters at a moment."""

    at: float
    clock: float
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)  # by incarnation


class ServerMonitor:
    """Threads and memory of measuring; see `nfagent.protocols.Monitor`.

    Args:
        store: instances' locations, and costs learnt before.
        catalog: of flavors.
        server: switches and their links.
        capacity: of the locations.
        remote: locations on other machines.
        probes: of the switches that can be queried.
        ports: queries oneswitchd; raises `ServerError`.
        period_s: from sample to sample.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        server: ServerConfig,
        capacity: Mapping[str, Capacity],
        remote: frozenset[str],
        probes: Mapping[str, SwitchProbe],
        ports: Callable[[], list[VirtualPort]],
        period_s: float,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._server = server
        self._capacity = capacity
        self._remote = remote
        self._probes = probes
        self._ports = ports
        self._period_s = period_s
        self._learner = Learner(coefficients.everything(store.read))
        self._kept = {(each.kind, each.location_class): each for each in self._learner.coefficients()}
        self._kept_at = time.monotonic()
        self._loads = LoadProbe()
        self._layout: Layout | None = None
        self._before: _Look | None = None
        self._day = Day(store)
        self._faults: dict[str, str] = {}
        self._ring: deque[Measurement] = deque(maxlen=max(2, int(HISTORY_S / period_s)))
        self._ringing = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measure", daemon=True)

    def start(self) -> None:
        """Start measuring."""
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring, and store learnt costs."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
            self._keep()
            self._remember(self._day.keep)

    # ---- queries

    def newest(self) -> Measurement | None:
        with self._ringing:
            return self._ring[-1] if self._ring else None

    def history(self) -> list[Measurement]:
        with self._ringing:
            return list(self._ring)

    def day(self, series: str) -> tuple[Step, ...]:
        return self._day.series(series)

    def flows(self, instance: str, before: float) -> int | None:
        """Return an instance's flows in the last measurement before a moment (seconds since 1970)."""
        loads = [each.instances.get(instance) for each in reversed(self.history()) if each.at < before]
        return next((load.flows for load in loads if load is not None and load.flows is not None), None)

    def coefficients(self) -> list[Coefficient]:
        return self._learner.coefficients()

    def layout(self) -> Layout | None:
        """Return where ports were at the newest sample; None: oneswitchd did not answer."""
        return None if "oneswitchd" in self._faults else self._layout

    # ---- measuring

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self.sample()
                if time.monotonic() - self._kept_at > _KEEP_S:
                    self._keep()
            except Exception:  # noqa: BLE001  a fault in one sample must not end measuring
                _log.exception("internal error in a sample")
            due = max(due + self._period_s, time.monotonic())
            self._stopping.wait(due - time.monotonic())

    def sample(self) -> Measurement | None:
        """Read all counters; return a measurement unless they are the first."""
        running = subjects(self._store.read, self._catalog, self._remote)
        self._layout = self._new_layout({mac: port for each in running for port, mac in each.macs}) or self._layout
        look = _Look(time.time(), time.monotonic())
        for name, probe in self._probes.items():
            try:
                look.snapshots[name] = probe.look()
                self._well(name)
            except ToolError as error:
                self._fault(name, str(error))
        look.counted = self._loads.look(running)
        before, self._before = self._before, look
        if before is None:
            return None
        measured = self._measurement(before, look, running)
        with self._ringing:
            self._ring.append(measured)
        self._remember(lambda: self._day.take(measured))
        return measured

    def _new_layout(self, functions: Mapping[str, int]) -> Layout | None:
        try:
            layout = Layout.of(self._server, self._ports(), functions)
        except ServerError as error:
            self._fault("oneswitchd", str(error))
            return None
        self._well("oneswitchd")
        return layout

    def _measurement(self, before: _Look, look: _Look, running: list[Subject]) -> Measurement:
        layout = self._layout or Layout({})
        traffic = Traffic()
        rates: dict[str, dict[str, PortRates]] = {}
        for name, snapshot in look.snapshots.items():
            earlier = before.snapshots.get(name)
            if earlier is not None and name in layout.switches:
                attribute(traffic, layout, name, earlier, snapshot)
                rates[name] = port_rates(earlier, snapshot)
        matrix = traffic.matrix()
        entered, left = _by_port(layout, rates)
        loads = self._instance_loads(before, look, running, entered, left)
        self._learn(running, loads, look.at - before.at)
        return Measurement(
            at=look.at,
            window_s=look.clock - before.clock,
            matrix=matrix,
            error=relative_error(matrix, traffic.received(left)) if rates else 1.0,
            instances=loads,
            links=self._links(look, rates),
            locations=self._locations(running, loads),
        )

    def _instance_loads(
        self,
        before: _Look,
        look: _Look,
        running: list[Subject],
        entered: Mapping[int, Rate],
        left: Mapping[int, Rate],
    ) -> dict[str, Load]:
        earlier = self._ring[-1].instances if self._ring else {}
        found: dict[str, Load] = {}
        for subject in running:
            then, now = before.counted.get(subject.incarnation), look.counted[subject.incarnation]
            if then is None:
                continue
            counted = [table[port] for port in subject.ports for table in (entered, left) if port in table]
            known = subject.ports and len(counted) == 2 * len(subject.ports)
            made = load(subject, then, now, _sum(counted) if known else None)
            # The ring keeps thousands; most are idle and equal.
            found[subject.instance] = earlier[subject.instance] if earlier.get(subject.instance) == made else made
        return found

    def _learn(self, running: list[Subject], loads: Mapping[str, Load], window_s: float) -> None:
        for subject in running:
            made = loads.get(subject.instance)
            capacity = self._capacity.get(subject.location)
            settled = subject.steady and time.time() - subject.since > _SETTLED_S + window_s
            if made is not None and capacity is not None and settled:
                self._learner.take(
                    subject.kind,
                    capacity.location_class,
                    made.traffic.mbps,
                    made.traffic.pps,
                    made.millicores,
                    made.utilisation,
                )

    def _links(self, look: _Look, rates: Mapping[str, Mapping[str, PortRates]]) -> dict[str, LinkUse]:
        """Return link use by the hypervisor's counters; if it does not answer, by the sNIC's."""
        found: dict[str, LinkUse] = {}
        hub = self._server.switch[0].name
        for switch in self._server.switch[1:]:
            capacity = self._capacity[switch.name].pcie_mbps or 0
            if switch.link is None:
                continue
            for side, interface in ((hub, switch.link.hypervisor), (switch.name, switch.link.local)):
                used = rates.get(side, {}).get(interface)
                if used is not None:
                    counted = look.snapshots[side].counters[interface]
                    found[switch.name] = link_use(used, counted, capacity, at_hub=side == hub)
                    break
        return found

    def _locations(self, running: list[Subject], loads: Mapping[str, Load]) -> dict[str, LocationUse]:
        used = dict.fromkeys(self._capacity, 0)
        for subject in running:
            if subject.location in used and subject.instance in loads:
                used[subject.location] += loads[subject.instance].millicores
        return {name: LocationUse(used[name], each.millicores) for name, each in self._capacity.items()}

    # ---- storing and logging

    def _keep(self) -> None:
        """Store learnt costs that have changed significantly."""
        self._kept_at = time.monotonic()
        changed = [each for each in self._learner.coefficients() if self._differs(each)]
        if changed:
            with self._store.change() as change:
                coefficients.put(change, changed)
            self._kept |= {(each.kind, each.location_class): each for each in changed}

    def _remember(self, store: Callable[[], None]) -> None:
        """Store figures of the day; a full disk must not stop measuring."""
        try:
            store()
            self._well("the last day")
        except (DiskFullError, sqlite3.Error) as error:
            self._fault("the last day", str(error))

    def _differs(self, learnt: Coefficient) -> bool:
        kept = self._kept.get((learnt.kind, learnt.location_class))
        if kept is None:
            return True
        change = abs(learnt.millicores_per_mbps - kept.millicores_per_mbps)
        return change > 0.01 * kept.millicores_per_mbps or learnt.samples > 2 * kept.samples

    def _fault(self, what: str, why: str) -> None:
        if self._faults.get(what) != why:
            self._faults[what] = why
            _log.warning("%s is not measured: %s", what, why)

    def _well(self, what: str) -> None:
        if self._faults.pop(what, None) is not None:
            _log.info("%s is measured again", what)


def _by_port(layout: Layout, rates: Mapping[str, Mapping[str, PortRates]]) -> tuple[dict[int, Rate], dict[int, Rate]]:
    """Return the traffic that entered the server at each counted virtual port, and that left it there."""
    entered: dict[int, Rate] = {}
    left: dict[int, Rate] = {}
    for switch, interfaces in rates.items():
        for interface, port in layout.switches[switch].local.items():
            if interface in interfaces:
                entered[port] = _sum([entered.get(port, _NONE), interfaces[interface].rx])
                left[port] = _sum([left.get(port, _NONE), interfaces[interface].tx])
    return entered, left


def link_use(used: PortRates, counted: PortCounters, capacity_mbps: int, *, at_hub: bool) -> LinkUse:
    """Return the use of a link by its interface at the hypervisor or at the sNIC."""
    sent = (counted.tx_packets, counted.tx_bytes)
    received = (counted.rx_packets, counted.rx_bytes)
    if at_hub:
        return LinkUse(used.tx, used.rx, capacity_mbps, LinkTotals(*sent, *received))
    return LinkUse(used.rx, used.tx, capacity_mbps, LinkTotals(*received, *sent))


def _sum(rates: list[Rate]) -> Rate:
    return Rate(sum(rate.mbps for rate in rates), sum(rate.pps for rate in rates))
