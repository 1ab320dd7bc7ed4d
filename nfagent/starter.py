"""Starts, finds, configures and ends processes of instances, with their rows and ports.

Each method is idempotent, so that it can be called again after a crash at any point. A row is written before its
process starts and deleted after the process has ended: no process lacks a row.
"""

import json
import logging
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from nfagent.catalog import Catalog
from nfagent.config import AgentConfig, SlotConfig
from nfagent.control import Control
from nfagent.errors import ControlError, ControlUnreachableError, LaunchError, WiringError
from nfagent.homing import owner_of
from nfagent.launch import Launcher, Process, Task
from nfagent.launch.commands import ARENA_FD, RINGS_FD, command_line
from nfagent.model import Instance, InstancePort, Kind, Role, Running, Slot
from nfagent.protocols import Wiring
from nfagent.reasons import ENDED
from nfagent.store import Store, processes
from server.tracing import step

_log = logging.getLogger(__name__)

_READY_S = 30.0
_TAKES_OVER_S = 10.0  # its predecessor serves, or packets wait for it
_GRACE_S = 5.0
_SURVIVES_S = 0.1
_POLL_S = 0.02

Watcher = Callable[[str, int], None]


class Starter:
    """The only part that starts and stops processes.

    Args:
        store: contains the rows.
        catalog: of kinds and flavors.
        config: of slots.
        launchers: by location.
        wiring: of ports.
        watch: called with an instance's id and a descriptor of its process.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        config: AgentConfig,
        launchers: Mapping[str, Launcher],
        wiring: Wiring,
        watch: Watcher,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._config = config
        self._launchers = launchers
        self._wiring = wiring
        self._watch = watch
        self._watched: dict[str, str] = {}  # incarnation by key
        self._killed: dict[str, tuple[str, str]] = {}  # incarnation by key, and why

    def kind(self, instance: Instance) -> Kind:
        """Return an instance's kind and flavor.

        Raises:
            LaunchError: agent.toml no longer has them.
        """
        kind = self._catalog.kinds.get(instance.kind)
        if kind is None:
            raise LaunchError(f"agent.toml no longer has the kind {instance.kind!r}; restore it")
        return kind

    def begin(self, instance: Instance, location: str, role: Role, before: Running | None) -> Running:
        """Write the row of a process that is about to start, with a slot of its own.

        oneswitchd maps no port to an interface that another port still has, such as one whose process has died. So the
        slot with the instance's own ports comes first, and one with others' ports last.

        Args:
            instance: to start.
            location: to start it at.
            role: of the process.
            before: row of the previous attempt, whose process has ended; this replaces it, in its slot if possible.

        Raises:
            LaunchError: its kind or location is unknown, or no slot is free.
        """
        kind = self.kind(instance)
        key = _key(instance.id, location)
        launcher = self._launcher(location)
        control = str(launcher.control_path(key)) if kind.movable else None
        carried = self._carried(instance, location)
        with self._store.change() as change:
            if before is not None:
                processes.remove(change, before)
            running = Running(
                incarnation=str(uuid.uuid4()),
                instance=instance.id,
                role=role,
                location=location,
                slot=self._free_slot(change.db, instance, location, before, carried),
                phase="starting",
                generation=instance.generation,
                since=time.time(),
                control=control,
                reason=before.reason if before else None,
                flavor=instance.flavor,
            )
            processes.add(change, running)
        return running

    def fail(self, instance: Instance, location: str, role: Role, before: Running | None, reason: str) -> None:
        """Record why there is no process."""
        if before is not None and (before.phase, before.reason) == ("error", reason):
            return
        with self._store.change() as change:
            if before is not None:
                last = before.slot or before.last_slot
                now = time.time()
                processes.update(
                    change, before, phase="error", reason=reason, slot=None, last_slot=last, silent=None, since=now
                )
                return
            incarnation, now = str(uuid.uuid4()), time.time()
            row = Running(
                incarnation, instance.id, role, location, None, "error", instance.generation, now, reason=reason
            )
            processes.add(change, row)

    def note(self, running: Running, reason: str | None) -> Running:
        """Record what is wrong with a running process; None: nothing."""
        if running.reason == reason:
            return running
        with self._store.change() as change:
            return processes.update(change, running, reason=reason, since=time.time())

    @step("launch")
    def launch(
        self, instance: Instance, running: Running, *, hold: bool = False, adopt: tuple[int, int] | None = None
    ) -> Running:
        """Start the process of a row, or find it, and wait until it is ready.

        Args:
            instance: whose.
            running: its row.
            hold: hold packets until a migration commits.
            adopt: descriptors of the state and of the rings to continue from.

        Raises:
            LaunchError: it did not start; nothing of it is left.
        """
        key, launcher = _key(instance.id, running.location), self._launcher(running.location)
        try:
            slot = self._slot(running)
            if slot is not None:
                self._prepare(launcher, instance, slot)
            process = launcher.start(self._task(launcher, instance, running, slot, hold=hold, adopt=adopt))
            with self._store.change() as change:
                running = processes.update(change, running, pid=process.pid, pid_started=process.started)
            self._await_ready(launcher, running, process, _READY_S if not hold and adopt is None else _TAKES_OVER_S)
            own = launcher.own_pid(process, slot.enter if slot else ())
            with self._store.change() as change:
                running = processes.update(change, running, own_pid=own)
        except LaunchError:
            launcher.stop(key, 0.0)
            raise
        self.watch(running)
        return running

    def serve(self, instance: Instance, running: Running) -> Running:
        """Connect the instance's ports to this process, and record that it is active.

        Raises:
            WiringError: connecting a port failed; the process keeps running.
        """
        self.connect(instance, running)
        with self._store.change() as change:
            return processes.update(change, running, phase="active", reason=None, since=time.time())

    @step("connect")
    def connect(self, instance: Instance, running: Running) -> None:
        """Connect the instance's ports to this process.

        Raises:
            WiringError: connecting a port failed.
        """
        if wires := self.wires(instance, running):
            self._wiring.connect(wires, running.location, owner_of(instance))

    def is_connected(self, instance: Instance, running: Running) -> bool:
        """Return whether the instance's ports are at this process.

        Raises:
            WiringError: oneswitchd does not answer.
        """
        wanted = {port.number: (running.location, edge) for port, edge in self.wires(instance, running)}
        homes = self._wiring.homes(owner_of(instance)) if wanted else {}
        return all(homes.get(number) == home for number, home in wanted.items())

    def wires(self, instance: Instance, running: Running) -> list[tuple[InstancePort, str]]:
        """Return the instance's ports with the interfaces, on the bridge ``edge``, of this process's slot."""
        slot = self._slot(running)
        edges = [wire.edge for wire in slot.wires] if slot else []
        return list(zip(instance.ports, edges, strict=False))

    def control_path(self, running: Running) -> Path:
        """Return the path of a process's control socket on this machine.

        Raises:
            LaunchError: its location does not answer.
        """
        return self._launcher(running.location).control_path(_key(running.instance, running.location))

    def find(self, running: Running) -> Process | None:
        """Return the process of a row, if it runs."""
        found = self._launcher(running.location).find(_key(running.instance, running.location))
        return found if found is not None and found.incarnation == running.incarnation else None

    def kill(self, running: Running, why: str) -> None:
        """Kill an unresponsive process; its end is handled as any other, with this reason.

        Raises:
            LaunchError: its location does not answer.
        """
        key = _key(running.instance, running.location)
        _log.error("%s: %s", key, why)
        self._killed[key] = running.incarnation, why
        self._launcher(running.location).kill(key, running.incarnation)

    def ending(self, running: Running) -> str:
        """Return what is known about the end of a row's process."""
        incarnation, why = self._killed.get(_key(running.instance, running.location), ("", ""))
        if incarnation == running.incarnation:
            return why
        key, launcher = _key(running.instance, running.location), self._launcher(running.location)
        how = ""
        if running.pid is not None and running.pid_started is not None:
            how = launcher.ending(Process(running.pid, running.pid_started, running.incarnation))
        return f"{ENDED}{how}; {launcher.last_words(key)}"

    def watch(self, running: Running) -> bool:
        """Watch for the end of a row's process; return False if it must be polled."""
        if running.pid is None or running.pid_started is None:
            return False
        key = _key(running.instance, running.location)
        if self._watched.get(key) == running.incarnation:
            return True  # a descriptor is kept for as long as the process lives: one is enough
        process = Process(running.pid, running.pid_started, running.incarnation)
        pidfd = self._launcher(running.location).pidfd(process)
        if pidfd is not None:
            self._watched[key] = running.incarnation
            self._watch(running.instance, pidfd)
        return pidfd is not None

    def configure(self, instance: Instance, running: Running) -> Running:
        """Give a running process the newest configuration.

        Raises:
            ControlError: it refused, or did not answer.
        """
        if running.control is None:
            raise ControlUnreachableError(f"instance {instance.name!r} has no control socket: its kind is not movable")
        Control(self.control_path(running)).ask("configure", config=instance.config)
        with self._store.change() as change:
            return processes.update(change, running, generation=instance.generation, reason=None)

    def note_silence(self, running: Running, since: float | None, reason: str | None) -> Running:
        """Record since when a process has not answered; None: it answers again."""
        with self._store.change() as change:
            return processes.update(change, running, silent=since, reason=reason, since=time.time())

    def end(self, running: Running, grace_s: float = _GRACE_S) -> None:
        """End a process and delete its row. Its ports stay.

        Raises:
            LaunchError: it does not end.
        """
        running = self.halt(running, grace_s)
        with self._store.change() as change:
            processes.remove(change, running)

    def forget(self, running: Running) -> None:
        """Delete the row of a process that has ended, or counts as ended; if it still runs, it becomes a stray."""
        with self._store.change() as change:
            processes.remove(change, running)

    @step("halt")
    def halt(self, running: Running, grace_s: float = _GRACE_S) -> Running:
        """End a process and keep its row."""
        if running.phase != "stopping":
            with self._store.change() as change:
                running = processes.update(change, running, phase="stopping", since=time.time())
        key = _key(running.instance, running.location)
        self._launcher(running.location).stop(key, grace_s)
        self._watched.pop(key, None)
        self._killed.pop(key, None)
        return running

    @step("disconnect")
    def disconnect(self, instance: Instance) -> None:
        """Disconnect the instance's ports.

        Raises:
            WiringError: disconnecting a port failed.
        """
        for port in instance.ports:
            self._wiring.disconnect(port)

    def machines(self) -> list[str]:
        """Return one location of each machine, this machine's first."""
        return [location for location, _ in {id(each): (name, each) for name, each in self._launchers.items()}.values()]

    def is_here(self, location: str) -> bool:
        """Tell whether processes at a location run on this machine, reachable even while the switch is away."""
        return self._launchers.get(location) is self._launchers.get(self.machines()[0])

    def end_strays(self, kept: Callable[[], Collection[str]], at: str | None = None) -> tuple[list[str], list[str]]:
        """End processes without a row, except those with the keys ``kept``.

        Returns their keys, and the locations where this must be repeated.

        Args:
            kept: returns the keys to keep; called once the processes are known.
            at: the location to check; None: all.
        """
        asked = {name: each for name, each in self._launchers.items() if at in (None, name)}
        strays: list[str] = []
        failed: list[str] = []
        for location, launcher in {id(each): (name, each) for name, each in asked.items()}.values():
            try:
                # Ending one may take seconds, in which another one's key can get a row, and a new process.
                for key in launcher.all_keys():
                    if self._is_stray(key, kept()):
                        launcher.stop(key, _GRACE_S)
                        strays.append(key)
            except LaunchError as error:
                _log.warning("cannot end strays at %s: %s", location, error)
                failed.append(location)
        return strays, failed

    # ---- parts

    def _is_stray(self, key: str, kept: Collection[str]) -> bool:
        """Return whether a process has no row: a row precedes its process, also that of a migration's keeper."""
        known = {_key(each.instance, each.location) for each in processes.everything(self._store.read)}
        return key not in known and key not in kept

    def _launcher(self, location: str) -> Launcher:
        launcher = self._launchers.get(location)
        if launcher is None:
            raise LaunchError(f"unknown location {location!r}; expected one of {', '.join(self._launchers)}")
        return launcher

    def _free_slot(
        self,
        db: sqlite3.Connection,
        instance: Instance,
        location: str,
        before: Running | None,
        carried: Mapping[str, Collection[int]],
    ) -> str | None:
        if not instance.ports:
            return None
        own = {port.number for port in instance.ports}
        kept = before.slot or before.last_slot if before is not None and before.location == location else None
        taken, fit = processes.taken_slots(db, location), self._fitting(instance, location)
        left = processes.left_slots(db, location, instance.id)

        def cost(slot: SlotConfig) -> tuple[int, int]:
            there = {number for wire in slot.wires[: len(own)] for number in carried.get(wire.edge, ())}
            is_own, is_others = bool(there) or slot.name == kept, bool(there - own) or slot.name in left
            return 2 if is_others else 0 if is_own else 1, len(slot.wires)

        if free := [slot for slot in fit if slot.name not in taken]:
            return min(free, key=cost).name
        slots = self._config.find_location(location).slot
        raise LaunchError(
            f"no free slot with {len(instance.ports)} interface(s) at {location}: of {len(slots)} slots {len(fit)} "
            f"have this many, all taken; add [[location.slot]] to agent.toml or delete an instance"
        )

    def _fitting(self, instance: Instance, location: str) -> list[SlotConfig]:
        slots = self._config.find_location(location).slot
        return [slot for slot in slots if len(slot.wires) >= len(instance.ports)]

    def _carried(self, instance: Instance, location: str) -> Mapping[str, Collection[int]]:
        """Return which ports the interfaces of a location carry, if that matters and oneswitchd answers."""
        if not instance.ports or len(self._fitting(instance, location)) < 2:
            return {}
        try:
            return self._wiring.carried(location)
        except WiringError as error:
            _log.warning("%s: its slot may have another instance's port: %s", _key(instance.id, location), error)
            return {}

    def _slot(self, running: Running) -> Slot | None:
        if running.slot is None:
            return None
        slot = self._config.find_location(running.location).find_slot(running.slot)
        if slot is None:
            raise LaunchError(f"agent.toml no longer has slot {running.slot!r} at {running.location}; restore it")
        return slot

    def _prepare(self, launcher: Launcher, instance: Instance, slot: Slot) -> None:
        for port, wire in zip(instance.ports, slot.wires, strict=False):
            launcher.call(slot.enter, ["ip", "link", "set", "dev", wire.inside, "address", port.mac, "up"])

    def _task(
        self,
        launcher: Launcher,
        instance: Instance,
        running: Running,
        slot: Slot | None,
        *,
        hold: bool,
        adopt: tuple[int, int] | None,
    ) -> Task:
        key = _key(instance.id, running.location)
        interfaces = tuple(wire.inside for wire in slot.wires[: len(instance.ports)]) if slot else ()
        places = launcher.places(key, interfaces)
        flavor = self._catalog.flavors.get(instance.flavor)
        command = command_line(self.kind(instance), instance, flavor, places, hold=hold, adopt=adopt is not None)
        return Task(
            key=key,
            incarnation=running.incarnation,
            enter=slot.enter if slot else (),
            command=tuple(command),
            config=json.dumps(instance.config),
            variables={"NFAGENT_INSTANCE": instance.id, "NFAGENT_NAME": instance.name},
            descriptors=dict(zip((ARENA_FD, RINGS_FD), adopt or (), strict=False)),
        )

    def _await_ready(self, launcher: Launcher, running: Running, process: Process, limit_s: float) -> None:
        """Wait until its control socket answers; without one, until it has lived for a moment."""
        key = _key(running.instance, running.location)
        deadline = time.monotonic() + (limit_s if running.control else _SURVIVES_S)
        said = ""
        while time.monotonic() < deadline:
            if running.control is not None:
                try:
                    Control(launcher.control_path(key)).ask("status", timeout_s=limit_s)
                    return
                except ControlError as error:
                    said = str(error)
            if launcher.find(key) is None:
                raise LaunchError(f"{ENDED}{launcher.ending(process)}; {launcher.last_words(key)}")
            time.sleep(_POLL_S)
        if running.control is not None:
            raise LaunchError(f"it was not ready after {limit_s:g} s: {said}; {launcher.last_words(key)}")


def _key(instance: str, location: str) -> str:
    return f"{instance}.{location}"
