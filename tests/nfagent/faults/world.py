"""A simulated server with a real reconciler, migrator, starter and store, and planned faults."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from nfagent.bulletin import Bulletin
from nfagent.clients import Client
from nfagent.config import AgentConfig
from nfagent.desired import Desired
from nfagent.errors import UnavailableError
from nfagent.health import Health
from nfagent.locations import Locations, Transition
from nfagent.migrate.keepers import Keepers
from nfagent.migrate.migrator import StateMigrator
from nfagent.migrate.move import Parts
from nfagent.model import Instance, Running, View
from nfagent.orders import Order
from nfagent.reconcile import Reconciler
from nfagent.starter import Starter
from nfagent.store import Change, Outlives, Store, instances, migrations, processes
from server.config import ServerConfig
from tests.nfagent.faults.clock import Clock
from tests.nfagent.faults.machine import RUNTIME, FakeProcess, Machines
from tests.nfagent.faults.nf import Nf
from tests.nfagent.faults.points import AWAY_S, BLIP_S, FOREVER, NAP_S, AgentDiedError, Border, Fault, Point
from tests.nfagent.faults.state import Moment, moment
from tests.nfagent.faults.switches import HUB, NIC, ONESWITCHD, FakeSwitching, FakeWiring, Switches
from tests.nfagent.samples import FakeFitness

AFTER_S = 2.0  # until a disconnected location counts as down
_CALL_S = 0.001
_LOOK_S, _HEALTH_S = 0.5, 1.0
ADMIN = Client("ops", admin=True)
_SECONDS = {"blip": BLIP_S, "away": AWAY_S, "lost": FOREVER, "hang": FOREVER, "nap": NAP_S}


class FaultyStore(Store):
    """The real store; each of its writes is a fault point."""

    world: World | None = None

    def begin_again(self) -> None:
        """Forget all events: the database was emptied."""
        self.world, self._last_event = None, 0

    @contextlib.contextmanager
    def change(self, *, outlives: Outlives = "machine") -> Iterator[Change]:
        if self.world is None:
            with super().change(outlives=outlives) as change:
                yield change
            return
        with self.world.crossing("write", "write", _disk_fault), super().change(outlives=outlives) as change:
            yield change
            self.world.called(_told(change))
            self.world.note(self.world.written(change))


def _disk_fault(said: str) -> sqlite3.Error:
    return sqlite3.OperationalError(f"disk I/O error ({said})")


def _told(change: Change) -> str:
    rows = change.db.execute("SELECT type, payload FROM event ORDER BY id DESC LIMIT 1").fetchall()
    return f"write {rows[0]['type']}" if rows else "write"


class NoDecider:
    """See `nfagent.protocols.Decider`; it has no plan."""

    def place(self, instance: Instance) -> str:
        raise UnavailableError("test", "nothing was measured yet")


class _Idle:
    """Replaces threads; records requested steps."""

    is_woken = False

    def wake(self, _: str) -> None:
        """See `nfagent.schedule.Schedule`."""
        self.is_woken = True

    def start(self) -> None:
        """Do nothing: there is no thread."""


class SteppedReconciler(Reconciler):
    """The real reconciler; its owner calls `step`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        idle: Any = _Idle()
        self._schedule = self._follower = self.idle = idle


class World:
    """A whole server, from an empty store.

    Args:
        store: of the agent.
        config: agent.toml.
        server: server.toml.
        catalog: of both.
        clock: shared by all parts.
        copies: whether state is copied though it could be handed over.
        remote: whether the smart NIC is a machine of its own.
        bind: called with this world first.
    """

    def __init__(
        self,
        store: FaultyStore,
        config: AgentConfig,
        server: ServerConfig,
        catalog: Any,
        clock: Clock,
        *,
        copies: bool = False,
        remote: bool = False,
        bind: Callable[[World], None],
    ) -> None:
        bind(self)
        self.store, self.config, self.server, self.catalog, self.clock = store, config, server, catalog, clock
        self._copies = copies
        self.switches = Switches(self)
        self.machines = Machines(self, frozenset({NIC} if remote else ()))
        self.desired = Desired(store, catalog, FakeFitness())
        self.points: list[Point] = []
        self.notes: list[str] = []  # the agent's actions, with all texts
        self._told: dict[str, dict[str, Any]] = {}
        self.plan: dict[int, list[Fault]] = {}
        self.is_recording = False
        self.is_tracing = False
        self.moments: list[Moment] = []  # the external state at each point
        self.happened, self.is_lost = 0, False  # number of faults, and whether one is permanent
        self.is_dead = False
        self.counted = 0
        self.is_excused = False  # its state was lost outside a migration, which is allowed
        self.violations: list[str] = []
        self.failures: list[Exception] = []
        store.world = self
        self.start_agent()

    # ---- the agent

    def start_agent(self) -> None:
        """Start an agent on the present store."""
        self.is_dead = False
        self.locations = Locations(Bulletin(self.store), self.switches.status, AFTER_S, self._look_at)
        wiring = FakeWiring(self, self.locations.is_cut_off)
        launchers = self.machines.launchers(self.catalog.locations)
        self.starter = Starter(self.store, self.catalog, self.config, launchers, wiring, lambda *_: None)
        local: Any = launchers[HUB]
        remote = self.machines.remote
        self.migrator = StateMigrator(
            Parts(
                store=self.store,
                starter=self.starter,
                switching=FakeSwitching(self, wiring),
                keepers=Keepers(local),
                runtime=RUNTIME,
                home=HUB,
                addresses={HUB: "192.0.2.1", NIC: "192.0.2.2"},
                local=frozenset(self.catalog.locations) - remote,
                copies=self._copies,
                rate_mbps=None,
                is_down=self.locations.is_down,
                is_cut_off=self.locations.is_cut_off,
            )
        )
        decider: Any = NoDecider()
        self.reconciler = SteppedReconciler(
            self.store, self.catalog, self.starter, decider, self.migrator, self.locations, lambda *_: 0
        )
        self.health = Health(self.store, self.starter, self.locations.is_cut_off, self.config.recovery.hung_after_s)
        self.reconciler.start()
        self.look()
        self.watch()

    def _look_at(self, location: str, change: Transition) -> None:
        self.reconciler.look_at(location, change)

    def watch(self) -> None:
        """Run two watching threads of the agent once; skipped while there is nothing to see."""
        self.clock.tick("look", _LOOK_S, self._look_again)
        self.clock.tick("health", _HEALTH_S, self._look_at_health)

    def _look_again(self) -> bool:
        if not self.is_dead:
            self.look()
        return not self._knows_locations()

    def look(self) -> None:
        """Find disconnected locations."""
        with contextlib.suppress(Exception):
            self.locations.look(self.switches.status(), self.clock.now)

    def _knows_locations(self) -> bool:
        """Tell whether the agent knows the state of the smart NIC's switch, or cannot ask."""
        known = {self.locations.is_down(NIC), self.locations.is_cut_off(NIC)}
        return not self.switches.is_up(ONESWITCHD) or known == {not self.switches.is_up(NIC)}

    def _look_at_health(self) -> bool:
        if not self.is_dead:
            with contextlib.suppress(Exception):
                self.health.look()
        silent = self.store.read.execute("SELECT 1 FROM running WHERE silent IS NOT NULL").fetchone()
        return silent is not None or any(map(self.machines.is_hung, self.machines.functions()))

    # ---- fault points

    @contextlib.contextmanager
    def crossing(
        self,
        border: Border,
        what: str,
        refused: Callable[[str], Exception],
        lost: Callable[[str], Exception] | None = None,
    ) -> Iterator[None]:
        """Be a fault point; the body is the effect."""
        if self.is_dead:
            raise AgentDiedError
        self.clock.sleep(_CALL_S)
        if not self.is_recording:
            yield
            return
        self._count(what)
        if border == "switch":
            self.note(what)
        functions, keepers = self.machines.functions(), self.machines.keepers()
        index = len(self.points)
        self.points.append(Point(index, border, what, len(functions), len(keepers)))
        if self.is_tracing:
            self.moments.append(moment(self))
        faults = self.plan.get(index, [])
        self.happened += len(faults)
        self.is_lost |= any(fault.kind.startswith("lost-") for fault in faults)
        for fault in faults:
            self._happen(fault, functions, keepers)
            if fault.kind == "refuse":
                raise refused("requested by the test")
        yield
        for fault in faults:
            if fault.kind == "dies":
                for each in functions:
                    if self.short(each.key) in what.split():
                        self.kill(each)
            if fault.kind in ("lose", "dies"):
                raise (lost or refused)("the test dropped the answer")

    def cross(self, border: Border, what: str, refused: Callable[[str], Exception] | None) -> None:
        """Be a fault point without an effect."""
        with self.crossing(border, what, refused or RuntimeError):
            pass

    def note(self, what: str) -> None:
        """Record an action of the agent."""
        if self.is_recording:
            self.notes.append(what.replace(self.instance, "ID"))

    def written(self, change: Change) -> str:
        """Return the newest event's differences from the previous one of its kind."""
        row = change.db.execute("SELECT type, payload FROM event ORDER BY id DESC LIMIT 1").fetchone()
        if row is None:
            return "write nothing"
        told = json.loads(row["payload"])
        told |= {
            f"report.{name}": value
            for name, value in told.pop("report", {}).items()
            if name not in ("steps", "step_at")
        }
        if told.get("report.lost_state"):
            told["report.lost_state"].pop("instances")
        hidden = ("incarnation", "instance", "requested", "started", "ended", "pid")
        before = self._told.get(row["type"].partition(".")[0], {})
        shown = [f"{name}={value}" for name, value in told.items() if name not in hidden and before.get(name) != value]
        self._told[row["type"].partition(".")[0]] = told
        return " ".join(["write", row["type"], *shown])

    def called(self, what: str) -> None:
        """Rename the newest point."""
        if self.is_recording and self.points[-1].border == "write":
            last = self.points[-1]
            self.points[-1] = Point(last.index, last.border, what, last.functions, last.keepers)

    def _happen(self, fault: Fault, functions: list[FakeProcess], keepers: list[FakeProcess]) -> None:
        how, _, whom = fault.kind.partition("-")
        if fault.kind == "crash":
            self.is_dead = True
            raise AgentDiedError
        if fault.kind == "delete":
            self.delete()
        elif fault.kind == "forget":
            self.switches.forget_moves()
        elif fault.kind == "down-nic":
            self.lose("snic0", AWAY_S + AFTER_S)
            self.clock.sleep(AFTER_S + 0.75)
        elif whom in ("old", "new"):
            victim = functions[0 if whom == "old" else -1] if functions else None
            if victim is not None and how == "kill":
                self.kill(victim)
            elif victim is not None:
                self.machines.hang(victim, _SECONDS[how])
                self.watch()
        elif whom == "keeper":
            for keeper in keepers:
                self.machines.kill(keeper)
        elif whom:
            self.lose({"nic": NIC, "hub": HUB}.get(whom, whom), _SECONDS[how])

    def kill(self, victim: FakeProcess) -> None:
        """Kill a process; outside migrations, or once it serves again, its state may be lost."""
        if victim.is_alive:
            self.machines.kill(victim)
            move = migrations.open_of(self.store.read, self.instance)
            is_back = move is not None and move.report.get("rolled_back_at") and self.nf(victim).phase == "running"
            self.is_excused |= move is None or bool(is_back)

    def lose(self, switch: str, seconds: float) -> None:
        """Take a switch away."""
        self.switches.lose(switch, seconds)
        self.watch()

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Suspend fault points."""
        was, self.is_recording = self.is_recording, False
        was_dead, self.is_dead = self.is_dead, False
        try:
            yield
        finally:
            self.is_recording, self.is_dead = was, was_dead

    # ---- traffic

    def _count(self, what: str) -> None:
        """Deliver a packet: the function that may process it counts it; two such functions are a violation."""
        senders = [each for each in self.machines.functions() if self.nf(each).may_send and not self._is_cut_off(each)]
        if len(senders) > 1:
            named = " and ".join(f"{self.short(each.key)} ({self.nf(each).phase})" for each in senders)
            self.violations.append(f"before {what!r}, {named} both have the right to send")
        for each in senders:
            if self.nf(each).processes and self.clock.now >= each.hung_until:
                self.nf(each).arena.count += 1
                self.counted += 1

    def _is_cut_off(self, process: FakeProcess) -> bool:
        """Tell whether a process gets no packets: its machine or switch is away, or back but not yet asked."""
        if not self.machines.reaches(process.location):
            return True
        if process.location not in self.machines.remote and self.switches.is_up(process.location):
            return False
        known = processes.of(self.store.read, self.instance)
        return process.process.incarnation not in [row.incarnation for row in known]

    @staticmethod
    def nf(process: FakeProcess) -> Nf:
        """Return the function of a process."""
        assert isinstance(process.program, Nf)
        return process.program

    # ---- clients

    def create(self, kind: str = "nf", target: str | None = None) -> str:
        """Create an instance with a port; return its id."""
        with self.untouched():
            view = self.desired.create(ADMIN, Order("lb", kind, "small", {"n": 1}, ports=1))
            if target is not None:
                with self.store.change() as change:
                    instances.aim(change, view.instance.id, target)
        self.instance = view.instance.id
        return self.instance

    def migrate(self, target: str | None = None) -> None:
        """Request a migration."""
        with self.untouched():
            self.desired.migrate(ADMIN, self.instance, target)

    def delete(self) -> None:
        """Request the deletion."""
        with self.untouched():
            if self.view() is not None:
                self.desired.delete(ADMIN, self.instance)

    def view(self) -> View | None:
        """Return the instance as the API shows it; None if it does not exist."""
        return instances.view(self.store.read, self.instance)

    def serving(self) -> Running | None:
        """Return the row of the serving process."""
        view = self.view()
        return view.running if view is not None else None

    def short(self, key: str) -> str:
        """Abbreviate a process's key."""
        owner, _, location = key.rpartition(".")
        return "keeper" if owner == "keeper" else location
