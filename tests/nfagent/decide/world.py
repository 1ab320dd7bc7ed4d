"""A decider on a store, with simulated traffic, switches, reconciler and time."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.config import DecideConfig, QuotaConfig
from nfagent.decide.decider import PlacementDecider
from nfagent.measurement import Coefficient, Load, LocationUse, Measurement, Rate, Step
from nfagent.model import Decision, Flavor, Instance, Kind
from nfagent.monitor.layout import Layout, SwitchLayout
from nfagent.store import Store, chains, decisions, events, instances, migrations, processes
from tests.nfagent import samples

HYPERVISOR, NIC = "hypervisor", "snic0"
HOST_COST, NIC_COST = 1.0, 2.0
"""Millicores for each Mbps in and out."""

VM, WIRE = 1, 2
"""Virtual ports of the server: on the hypervisor, and on the sNIC."""


class FakeMonitor:
    """See `nfagent.protocols.Monitor`."""

    def __init__(self) -> None:
        self.measured: Measurement | None = None
        self.learnt: list[Coefficient] = []

    def newest(self) -> Measurement | None:
        return self.measured

    def day(self, series: str) -> tuple[Step, ...]:
        return ()

    def history(self) -> list[Measurement]:
        return [] if self.measured is None else [self.measured]

    def coefficients(self) -> list[Coefficient]:
        return self.learnt


class DecideWorld:
    """The world.

    Args:
        directory: of the store.
        window: W.
        cores: of the sNIC.
        slots: at each location.
        host_cores: of the hypervisor.
    """

    def __init__(
        self,
        directory: Path,
        *,
        window: int = 10,
        cores: int = 4000,
        slots: int = 50,
        host_cores: int = 64_000,
    ) -> None:
        self.store = Store(directory)
        kind = {"lb": Kind("lb", "", True, (0, 2), ("x",)), "still": Kind("still", "", False, (0, 2), ("x",))}
        flavors = {"small": Flavor("small", 1, 256)}
        self.catalog = Catalog(kind, flavors, (HYPERVISOR, NIC), tuple(range(1000, 2000)), QuotaConfig(), b"abc")
        places = {f"s{number}": 1 + number % 2 for number in range(slots)}
        self.capacity = {
            HYPERVISOR: Capacity(host_cores, None, None, 1.0, places),
            NIC: Capacity(cores, None, 10_000, 2.0, places),
        }
        self.monitor = FakeMonitor()
        self.down: frozenset[str] = frozenset()
        self.fitness = samples.FakeFitness()
        self.silent = False  # oneswitchd does not answer
        self.now = 0.0
        self.traffic: dict[str, float] = {}  # Mb/s through an instance, by name: from the wire to the VM
        self.refusing: set[str] = set()  # names of instances whose migrations fail
        self.stuck: set[str] = set()  # names of instances whose migrations do not end
        self.moves: list[tuple[str, str, str]] = []
        self._window = window
        self.decider = self.make_decider()

    def make_decider(self, **settings: Any) -> PlacementDecider:
        """Make another decider, as after a restart."""
        config = DecideConfig(window=self._window, **settings)
        return PlacementDecider(
            self.store,
            self.catalog,
            self.capacity,
            self.monitor,
            lambda: None if self.silent else self.layout(),
            lambda: self.down,
            self.fitness,
            config,
            clock=lambda: self.now,
        )

    def layout(self) -> Layout:
        """Return the locations of ports: those of an instance are where it runs."""
        made = Layout({HYPERVISOR: SwitchLayout(), NIC: SwitchLayout()})
        made.home = {VM: HYPERVISOR, WIRE: NIC}
        for view in instances.views(self.store.read, instances.Filter()):
            for port in view.instance.ports:
                if view.running is not None:
                    made.home[port.number] = view.running.location
        made.executor = dict(made.home)
        return made

    # ---- instances

    def create(self, name: str, location: str = HYPERVISOR, *, mbps: float = 0.0, **fields: Any) -> Instance:
        """Create a running instance."""
        count = fields.pop("ports", 1)
        taken = len(instances.port_owners(self.store.read))
        ports = tuple(samples.port(1000 + taken + number) for number in range(count))
        made = samples.instance(name, **({"kind": "lb", "ports": ports} | fields))
        with self.store.change() as change:
            instances.add(change, made)
            slot = self._free_slot(location) if ports else None
            processes.add(change, samples.running(made, location, phase="active", slot=slot))
        self.traffic[name] = mbps
        return made

    def delete(self, name: str) -> None:
        """Delete an instance."""
        instance = self.instance(name)
        with self.store.change() as change:
            for row in processes.of(change.db, instance.id):
                processes.remove(change, row)
            instances.give_up(change, instance.id)
            instances.remove(change, instance)
        self.traffic.pop(name)

    def pin(self, name: str, location: str | None) -> None:
        """Pin an instance as an operator does."""
        with self.store.change() as change:
            instances.pin(change, self.instance(name).id, location)

    def chain(self, name: str, *hops: str, latency_us: int) -> None:
        """Create a chain; hops name instances."""
        ids = tuple(hop if hop.startswith("port:") else self.instance(hop).id for hop in hops)
        with self.store.change() as change:
            chains.add(change, replace(samples.chain(name, ids), latency_us=latency_us))

    def instance(self, name: str) -> Instance:
        """Return an instance by name."""
        (found,) = instances.named(self.store.read, name, "acme")
        return found

    def where(self, name: str) -> str:
        """Return the location of an instance."""
        return processes.of(self.store.read, self.instance(name).id)[0].location

    def _free_slot(self, location: str) -> str:
        taken = processes.taken_slots(self.store.read, location)
        return next(slot for slot in self.capacity[location].slots if slot not in taken)

    # ---- time

    def second(self, *, urgent: bool = False) -> None:
        """Measure, decide and reconcile once."""
        self.now += 1.0
        self.monitor.measured = self._measure()
        self.decider.step(urgent=urgent)
        self.reconcile()

    def seconds(
        self, count: int, traffic: Callable[[int], dict[str, float]] | None = None
    ) -> list[tuple[str, str, str]]:
        """Let several seconds pass; return the moves meanwhile."""
        before = len(self.moves)
        for number in range(count):
            self.traffic |= traffic(number) if traffic else {}
            self.second()
        return self.moves[before:]

    def _measure(self) -> Measurement:
        matrix: dict[tuple[int, int], Rate] = {}
        loads: dict[str, Load] = {}
        used = dict.fromkeys(self.capacity, 0)
        for view in instances.views(self.store.read, instances.Filter()):
            instance, running = view.instance, view.running
            mbps = self.traffic.get(instance.name, 0.0)
            if running is None:
                continue
            for port in instance.ports[:1]:
                matrix[WIRE, port.number] = Rate(mbps, mbps * 100)
                matrix[port.number, VM] = Rate(mbps, mbps * 100)
            cost = HOST_COST if running.location == HYPERVISOR else NIC_COST
            millicores = round(2 * mbps * cost)
            used[running.location] += millicores
            loads[instance.id] = Load(min(1.0, millicores / 1000), millicores, Rate(2 * mbps, mbps * 200), None)
        uses = {name: LocationUse(used[name], each.millicores) for name, each in self.capacity.items()}
        return Measurement(self.now, 1.0, matrix, 0.0, loads, {}, uses)

    def reconcile(self) -> None:
        """Act as reconciler and migrator; the decider keeps at most one migration open."""
        for view in instances.views(self.store.read, instances.Filter()):
            instance, running = view.instance, view.running
            assert running is not None
            goal = instance.pin or instance.target or running.location
            if view.migration is None and goal == running.location:
                continue
            with self.store.change() as change:
                migration = view.migration or migrations.request(change, instance, running.location, goal, "state")
                if instance.name in self.stuck:
                    continue
                if instance.name in self.refusing:
                    instances.aim(change, instance.id, migration.source)
                    migrations.end(change, migration, "rolled-back", "it was refused", {})
                    continue
                processes.remove(change, running)
                slot = self._free_slot(migration.target) if instance.ports else None
                processes.add(change, samples.running(instance, migration.target, phase="active", slot=slot))
                migrations.end(change, migration, "done", None, {})
                self.moves.append((instance.name, migration.source, migration.target))

    # ---- what was written

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the payloads of all events of a type."""
        return [each.payload for each in events.after(self.store.read, 0, 10**6, None) if each.type == kind]

    def decisions(self) -> list[Decision]:
        """Return all decisions, the oldest first."""
        return decisions.page(self.store.read, 1000, None)[::-1]


def square(low: float, high: float, period: int) -> Callable[[int], float]:
    """Return a wave that is high in the first half of each period."""
    return lambda number: high if number % period < period / 2 else low


def sine(low: float, high: float, period: int) -> Callable[[int], float]:
    """Return a sine between two levels."""
    return lambda number: low + (high - low) * (1 + math.sin(2 * math.pi * number / period)) / 2


def noise(mean: float, part: float, seed: int) -> Callable[[int], float]:
    """Return noise of at most this fraction around a mean."""
    source = random.Random(seed)
    return lambda number: mean * source.uniform(1 - part, 1 + part)
