"""Recovery when something has died or failed: back before COMMIT, forward after it."""

import contextlib
import logging
import time

from nfagent.errors import AgentError, LaunchError
from nfagent.migrate.journal import COMMIT
from nfagent.migrate.move import RunningMigration
from nfagent.migrate.peer import Peer, PeerGoneError
from nfagent.model import Outcome, Running

_log = logging.getLogger(__name__)

_GRACE_S = 1.0
_MAY_THAW = ("prepared", "frozen", "delivered")  # the last one of nf before the processes handed over by themselves
_TRIES = 3  # attempts to start a process at one location


def roll_back(move: RunningMigration, reason: str, outcome: Outcome = "rolled-back") -> None:
    """Roll back: the old process continues, or another with its state; the new one is ended.

    If the processes have handed over, it records COMMIT instead.

    Raises:
        AgentError: it could not be completed; call it again.
    """
    journal, parts, report = move.journal, move.parts, move.journal.report
    if journal.migration.step == "freeze" and is_given(move):
        report.rolled_back_at = report.why = report.rolled_back_as = None
        journal.step(COMMIT)
        return
    if report.why is None:
        report.rolled_back_at, report.why, report.rolled_back_as = journal.migration.step, reason, outcome
        report.step_at = round(time.time(), 3)
        journal.note()  # what follows may fail, and a retry needs the reason
    with journal.timed("thaw"):
        old = _thawed(move)
    row = move.row("serving")
    if old is None and row is not None and parts.is_down(row.location):
        # Nothing is left to go back to.
        go_on_at(move, move.target if not parts.is_down(move.target) else parts.home, report.why)
        return
    serving = old.running if old is not None else _revive(move, row)
    journal.note()
    with journal.timed("abort"):
        for port in move.instance.ports:
            parts.switching.abort(port)
        move.end(move.row("incoming"), _GRACE_S)
    move.take_over(report.rolled_back_as or "rolled-back", report.why, serving, None)


def is_given(move: RunningMigration) -> bool:
    """Return whether the old process has given the right to send to the new one, as the processes tell.

    A new process that is dead cannot tell, nor can it have processed anything unless the old one says "given". If both
    are dead, one that continues at either location continues right: the state and the rings are all that counts.
    """
    new = None
    with contextlib.suppress(PeerGoneError):
        new = move.peer("incoming")
        if new is not None and new.phase() in ("relayed-to", "running"):
            return True
    try:
        old = move.peer("serving")
        phase = old.phase() if old is not None else "none"
    except PeerGoneError:
        return False
    return phase == "given" or (phase == "offered" and move.peer("incoming") is not None)


def _thawed(move: RunningMigration) -> Peer | None:
    """Thaw the old process; None: it has ended, or was ended because it hung and its state is kept."""
    try:
        old = move.peer("serving")
        phase = old.phase() if old is not None else "none"
        if old is not None and (phase in _MAY_THAW or (phase == "offered" and move.peer("incoming") is None)):
            old.ask("thaw")
        elif phase in ("offered", "given"):
            raise AgentError("the old process has handed over meanwhile")
    except PeerGoneError:
        return None
    return old


def _revive(move: RunningMigration, row: Running | None) -> Running | None:
    """Start a process in place of the old one, with its state and the packets in its rings."""
    kept = move.fetch()
    if row is None:
        return None
    if kept is None:
        move.journal.report.lost_state = lost(move, "the instance's process ended, and no other process had its state")
        return None  # the reconciler starts a new one
    if move.journal.report.mode == "copy" and move.journal.migration.step == "freeze" and move.peer("incoming") is None:
        why = "both processes ended while they handed over; changes at the new one, if it had begun, are lost"
        move.journal.report.lost_state = lost(move, why)
    instance = move.as_running(kept.prepared["config"], row)
    with move.journal.timed("revive"):
        move.end(move.row("incoming"), 0.0)  # only one process may have the state
        begun = move.parts.starter.begin(instance, row.location, "serving", row)
        try:
            return move.parts.starter.launch(instance, begun, adopt=kept.pair)
        except LaunchError as error:
            _go_elsewhere(move, row.location, error)
            raise


def replace_new(move: RunningMigration) -> None:
    """Replace the new process, which has died after COMMIT, by another that also processes what the old one relays.

    A copy that died before the old process knew of the commit has processed nothing, so the old one continues.
    """
    report, parts, row = move.journal.report, move.parts, move.row("incoming")
    if report.rolled_back_at is not None or (report.mode == "copy" and _is_untold(move)):
        roll_back(move, "the new process ended before it was relayed to" if row is None else move.ending(row))
        return
    kept = move.fetch()
    if kept is None or report.mode != "memfd" or parts.is_down(move.target):
        why = "the new process ended after COMMIT" if row is None else move.ending(row)
        go_on_at(move, parts.home if parts.is_down(move.target) else move.target, why)
        return
    if not report.replaced:
        report.replaced = True
        move.journal.note()
    with move.journal.timed("replace"):
        serving = move.row("serving")
        # Its interface is on the bridge, and the ports' moves lead there: the other process needs the same slot.
        before = row and move.halt(row, 0.0)
        instance = move.as_running(kept.prepared["config"], serving or row or _require_process(move))
        try:
            begun = parts.starter.begin(instance, move.target, "incoming", before)
            parts.starter.launch(instance, begun, hold=True)
        except LaunchError as error:
            _go_elsewhere(move, move.target, error)
            raise


def _is_untold(move: RunningMigration) -> bool:
    """Tell whether the old process is running and still frozen; arrived packets are in its rings."""
    old = move.peer("serving")
    return old is not None and old.phase() == "offered"


def go_on_at(move: RunningMigration, location: str, why: str) -> None:
    """Replace both processes by one, with whatever state remains: see `restart`."""
    report, kept = move.journal.report, move.fetch()
    report.restart_at, report.why = location, report.why or why
    if kept is None or location not in move.parts.local:
        report.lost_state = lost(move, why)
    elif report.mode == "copy" and move.journal.is_committed:
        report.lost_state = lost(move, f"{why}; its changes after COMMIT are lost")
    move.journal.step(move.journal.migration.step if move.journal.is_committed else COMMIT)


def _go_elsewhere(move: RunningMigration, location: str, error: LaunchError) -> None:
    """After repeated failures to start a process at a location, use another one; after failures there, give up."""
    report, parts = move.journal.report, move.parts
    report.failures += 1
    move.journal.note()  # a retry continues counting from the journal
    if report.failures % _TRIES:
        return
    places = [place for place in dict.fromkeys((move.target, move.source, parts.home)) if not parts.is_down(place)]
    if report.failures >= _TRIES * (len(places) + 1):
        report.lost_state = lost(move, f"no process could be started: {error}")
        move.take_over("failed", str(error), None, move.row("serving"))
        return
    others = [place for place in places if place != location]
    if others:
        go_on_at(move, others[report.failures // _TRIES % len(others)], str(error))


def restart(move: RunningMigration) -> None:
    """Start the process that `go_on_at` has decided on.

    Raises:
        AgentError: it could not be completed; call it again.
    """
    report, parts = move.journal.report, move.parts
    location, kept = report.restart_at or move.target, move.fetch()
    with move.journal.timed("restart"):
        if kept is not None and location not in parts.local:
            kept = None
        running, instance = move.row("serving"), move.instance
        if running is None or running.phase != "starting" or running.location != location:
            move.end(move.row("incoming"), 0.0)
            before = running and move.halt(running, 0.0)
            if kept is not None and before is not None:
                instance = move.as_running({}, before)
            running = parts.starter.begin(instance, location, "serving", before)
        if kept is not None:
            instance = move.as_running(kept.prepared["config"], running)
        try:
            running = parts.starter.launch(instance, running, adopt=kept and kept.pair)
        except LaunchError as error:
            _go_elsewhere(move, location, error)
            raise
    with move.journal.timed("done"):
        for port, edge in parts.starter.wires(move.instance, running):
            parts.switching.prepare(port, location, edge)  # its interface may never have been on the bridge there
            parts.switching.finish(port, location, edge)
    outcome: Outcome = "done" if location == move.target else report.rolled_back_as or "rolled-back"
    if outcome == "done":
        report.rolled_back_at = None  # its rollback had nothing to go back to
    elif report.rolled_back_at is None:
        report.rolled_back_at = move.journal.migration.step
    move.take_over(outcome, report.why, running, None)


def lost(move: RunningMigration, why: str) -> dict[str, object]:
    """`Report.lost_state`."""
    _log.error("instance %s: state was lost: %s", move.instance.name, why)
    return {"why": why, "flows": move.journal.report.flows, "instances": [move.instance.id]}


def _require_process(move: RunningMigration) -> Running:
    raise LaunchError(f"migration {move.journal.epoch} of {move.instance.name} has no process at all")
