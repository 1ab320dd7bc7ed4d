"""The resources and the progress of a migration."""

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfagent.errors import AgentError, LaunchError
from nfagent.migrate.journal import Journal, Measure
from nfagent.migrate.keepers import Keepers, Kept
from nfagent.migrate.peer import Peer, PeerGoneError
from nfagent.migrate.quiescing import Quiescing
from nfagent.migrate.switching import Marking, Switching
from nfagent.model import Instance, Migration, Outcome, Role, Running
from nfagent.starter import Starter
from nfagent.store import Store, instances, processes


class TurnBackError(AgentError):
    """The migration must be rolled back, for this reason.

    Attributes:
        outcome: the resulting outcome.
    """

    def __init__(self, reason: str, outcome: Outcome = "rolled-back") -> None:
        self.outcome: Outcome = outcome
        super().__init__(reason)


@dataclass(frozen=True)
class Parts:
    """Resources that all migrations share.

    Attributes:
        keepers: the keepers on this machine.
        runtime: directory of sockets on this machine.
        home: the hypervisor.
        addresses: by location: where instances there listen for copied state, such as ``192.168.100.1``.
        local: the locations whose processes are on this machine, to which open files can be passed.
        copies: whether state is copied even if it could be handed over.
        rate_mbps: limit for copying; None: unlimited.
        is_down: tells whether a location has been disconnected for so long that its processes count as ended.
        is_cut_off: tells whether a location is disconnected now.
    """

    store: Store
    starter: Starter
    switching: Switching
    keepers: Keepers
    runtime: Path
    home: str
    addresses: Mapping[str, str]
    local: frozenset[str]
    copies: bool
    rate_mbps: int | None
    is_down: Callable[[str], bool]
    is_cut_off: Callable[[str], bool]


class RunningMigration:
    """A migration in progress.

    Args:
        parts: shared resources.
        migration: its row.
        instance: the moving instance.
        outage_s: measures the outage.
    """

    def __init__(
        self,
        parts: Parts,
        migration: Migration,
        instance: Instance,
        outage_s: Measure = float,
    ) -> None:
        self.parts = parts
        self.instance = instance
        self.journal = Journal(parts.store, migration, outage_s)
        self._kept: Kept | None = None
        self._peers: dict[str, Peer] = {}
        self._halted: set[str] = set()  # incarnations
        self._marking: tuple[tuple[str, str], Marking] | None = None
        self._quiescing: Quiescing | None = None

    @property
    def source(self) -> str:
        """Return the source location."""
        return self.journal.migration.source

    @property
    def target(self) -> str:
        """Return the target location."""
        return self.journal.migration.target

    @property
    def is_local(self) -> bool:
        """Return whether both processes are on this machine."""
        return {self.source, self.target} <= self.parts.local

    def is_wanted(self) -> bool:
        """Return whether the instance is still wanted."""
        found = instances.find(self.parts.store.read, self.instance.id)
        return found is not None and found.present

    def _require_wanted(self) -> None:
        """Check that waiting is still useful.

        Raises:
            TurnBackError: before COMMIT, and the instance is being deleted.
        """
        if self.journal.migration.step == "precopy" and self.journal.report.rolled_back_at is None:
            self.require_wanted()

    def require_wanted(self) -> None:
        """Check that the instance is still wanted.

        Raises:
            TurnBackError: it is being deleted.
        """
        if not self.is_wanted():
            raise TurnBackError("the instance is being deleted", "cancelled")

    def as_running(self, config: dict[str, Any], old: Running) -> Instance:
        """Return the instance with the configuration and the flavor in force, which the new process needs, too."""
        return replace(self.instance, config=config, generation=old.generation, flavor=old.flavor)

    def note_wait(self, why: str) -> None:
        """Record what it waits for, if that has changed."""
        self.journal.look()
        if self.journal.migration.outcome is None and self.journal.report.waits != why:
            self.journal.report.waits = why
            self.journal.note()

    # ---- its processes

    def row(self, role: Role) -> Running | None:
        """Return the row of the old process (``serving``) or of the new one (``incoming``)."""
        rows = processes.of(self.parts.store.read, self.instance.id)
        return next((row for row in rows if row.role == role), None)

    def peer(self, role: Role) -> Peer | None:
        """Return the old or the new process, if it runs and can be reached."""
        row, known = self.row(role), self._peers.pop(role, None)
        # The agent that wrote "stopping" may have ended before the process did.
        is_ended = row is None or row.incarnation in self._halted
        if row is not None and not is_ended and (row.phase == "stopping" or self.parts.is_down(row.location)):
            row = self.halt(row, 0.0)
        if known is not None and (row is None or row.incarnation != known.running.incarnation):
            known.close()
            known = None
        found = known or (
            row and Peer(self.parts.starter, row, self.journal.epoch, functools.partial(self._is_spare, role))
        )
        if found is None or row is None or row.phase == "stopping" or not found.is_alive():
            if found is not None:
                found.close()
            return None
        self._peers[role] = found
        return found

    def known(self, role: Role) -> Peer | None:
        """Return what `peer` returned, without its 0.3 ms: requests tell whether the process has ended since."""
        return self._peers.get(role)

    def _is_spare(self, role: Role) -> bool:
        """Return whether the end of that process loses no state."""
        if role == "incoming" or self.journal.is_committed:
            return True
        if self._kept is None:
            self._kept = self.parts.keepers.fetch(self.journal.epoch)
        return self._kept is not None and self._kept.is_whole

    def need(self, role: Role) -> Peer:
        """Like `peer`, but require a process.

        Raises:
            PeerGoneError: it is not running.
        """
        found = self.peer(role)
        if found is None:
            row = self.row(role)
            said = self.ending(row) if row else "it has not been started yet"
            which = "old" if role == "serving" else "new"
            raise PeerGoneError(role, f"the {which} process is not running: {said}")
        return found

    def ending(self, row: Running) -> str:
        """Return why a process does not run."""
        if self.parts.is_down(row.location):
            return f"{row.location} is down"
        return self.parts.starter.ending(row)

    def marking(self) -> Marking:
        """Return what sends markers down the old paths.

        Raises:
            PeerGoneError: the old or the new process does not run.
        """
        old, new = (self.known(role) or self.need(role) for role in ("serving", "incoming"))
        ends = (old.running.incarnation, new.running.incarnation)
        if self._marking is None or self._marking[0] != ends:
            self.end_marking()
            wires = self.parts.starter.wires(self.instance, new.running)
            ports = [(port, (new.running.location, edge)) for port, edge in wires]
            self._marking = ends, self.parts.switching.marking(ports, self.journal.epoch, self.journal.secret)
        return self._marking[1]

    def end_marking(self) -> None:
        """Close its connection."""
        if self._marking is not None:
            self._marking[1].close()
            self._marking = None

    def quiescing(self) -> Quiescing:
        """Return what waits for the switches after a flip; it connects, so get it before packets wait."""
        if self._quiescing is None:
            self._quiescing = self.parts.switching.quiescing((self.source, self.target))
        return self._quiescing

    def halt(self, row: Running, grace_s: float) -> Running:
        """End a process and keep its row.

        One on another machine that is disconnected need not be reached; the reconciler ends it when that is back.

        Raises:
            LaunchError: it does not end, and could still send packets.
        """
        try:
            halted = self.parts.starter.halt(row, grace_s)
        except LaunchError:
            place = row.location
            if place in self.parts.local or not (self.parts.is_down(place) and self.parts.is_cut_off(place)):
                raise
            halted = replace(row, phase="stopping")
        self._halted.add(row.incarnation)
        return halted

    def end(self, row: Running | None, grace_s: float) -> None:
        """End a process and delete its row."""
        if row is not None:
            row = self.halt(row, grace_s)
            with self.parts.store.change() as change:
                processes.remove(change, row)

    # ---- its state

    def keep(self, kept: Kept) -> None:
        """Keep these, here and, if complete, in a keeper.

        Raises:
            LaunchError, ControlError: the keeper failed.
        """
        self._drop()
        self._kept = kept
        if kept.is_whole:
            self.parts.keepers.keep(self.journal.epoch, kept)

    def fetch(self) -> Kept | None:
        """Return the descriptors of state and rings, from the keeper or the old process."""
        if self._kept is None:
            self._kept = self.parts.keepers.fetch(self.journal.epoch) or self._prepared_again()
        return self._kept if self._kept is not None and self._kept.is_whole else None

    def _prepared_again(self) -> Kept | None:
        """Repeat `prepare` after the keeper's death; the old process answers as before, if it still has its work."""
        with contextlib.suppress(AgentError):
            old = self.peer("serving")
            if old is not None and old.phase() not in ("none", "running", "gone"):
                answer = old.exchange("prepare")
                return Kept(answer.value, answer.descriptors)
        return None

    def listen(self) -> str:
        """Return the address where the new process listens for copied state.

        Raises:
            TurnBackError: agent.toml does not configure it.
        """
        if self.is_local:
            path = self.parts.runtime / f"{self.instance.id}.{self.target}.state"
            path.unlink(missing_ok=True)
            return f"unix:{path}"
        if self.target not in self.parts.addresses:
            detail = (
                f"agent.toml lacks the address where instances at {self.target} listen for state: add the key address"
            )
            raise TurnBackError(detail)
        return f"tcp:{self.parts.addresses[self.target]}:0"

    # ---- its end

    def take_over(self, outcome: Outcome, reason: str | None, serving: Running | None, old: Running | None) -> None:
        """Record in one transaction that the new process serves, the old one is gone, and the migration has ended."""
        self.journal.measure()
        with self.parts.store.change() as change:
            if old is not None:
                processes.remove(change, old)
            if serving is not None:
                now = time.time()
                processes.update(change, serving, role="serving", phase="active", reason=None, since=now)
            at = serving.location if serving is not None else self.source
            wanted = instances.find(change.db, self.instance.id)
            if wanted is not None and wanted.target == self.target != at:
                instances.aim(change, wanted.id, at)
            self.journal.report.waits = None
            self.journal.end(change, outcome, reason)
        self.close()
        self.parts.keepers.end(self.journal.epoch)
        (self.parts.runtime / f"{self.instance.id}.{self.target}.state").unlink(missing_ok=True)

    def close(self) -> None:
        """Release resources that are needed only while it is in progress."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self.end_marking()
        if self._quiescing is not None:
            self._quiescing.close()
            self._quiescing = None
        self._drop()

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
