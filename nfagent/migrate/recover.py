"""What is done when something has died or failed: back before COMMIT, forward after it."""

import logging

from nfagent.errors import LaunchError
from nfagent.migrate.journal import COMMIT
from nfagent.migrate.move import Move
from nfagent.migrate.peer import Peer, PeerGoneError
from nfagent.model import Outcome, Running

_log = logging.getLogger(__name__)

_GRACE_S = 1.0
_MAY_THAW = ("prepared", "frozen", "delivered")
_TRIES = 3  # to start a process at one location


def roll_back(move: Move, reason: str, outcome: Outcome = "rolled-back") -> None:
    """Before COMMIT, or when all is as before it: the old process goes on, or another with its state; the new one goes.

    Raises:
        AgentError: not all of it could be done; it can be called again.
    """
    journal, parts, report = move.journal, move.parts, move.journal.report
    if report.why is None:
        report.rolled_back_at, report.why, report.rolled_back_as = journal.migration.step, reason, outcome
        journal.note()  # what follows may fail, and whoever tries again does not know why
    with journal.timed("thaw"):
        old = _thawed(move)
    row = move.row("serving")
    if old is None and row is not None and parts.is_down(row.location):
        # There is nowhere to go back to.
        go_on_at(move, move.target if not parts.is_down(move.target) else parts.home, report.why)
        return
    serving = old.running if old is not None else _revive(move, row)
    journal.note()
    with journal.timed("abort"):
        for port in move.instance.ports:
            parts.switching.abort(port)
        move.end(move.row("incoming"), _GRACE_S)
    move.take_over(report.rolled_back_as or "rolled-back", report.why, serving, None)


def _thawed(move: Move) -> Peer | None:
    """The old process at work again; None: it has ended, or was ended since it hung and its state is kept."""
    try:
        old = move.peer("serving")
        if old is not None and old.phase() in _MAY_THAW:
            old.ask("thaw")
    except PeerGoneError:
        return None
    return old


def _revive(move: Move, row: Running | None) -> Running | None:
    """A process in the place of the old one, with its state and what was in its rings."""
    kept = move.fetch()
    if row is None:
        return None
    if kept is None:
        move.journal.report.lost_state = lost(move, "the instance's process ended, and nobody else had its state")
        return None  # the reconciler starts a new one
    instance = move.as_running(kept.prepared["config"], row)
    with move.journal.timed("revive"):
        move.end(move.row("incoming"), 0.0)  # the state is for one
        begun = move.parts.starter.begin(instance, row.location, "serving", row)
        return move.parts.starter.launch(instance, begun, adopt=kept.pair)


def replace_new(move: Move) -> None:
    """After COMMIT the new process has died: another one takes its place, and does what the old one still relays.

    A copy that died before the old process was told of the commit has processed nothing: the old one goes on.
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
        move.end(row, 0.0)
        instance = move.as_running(kept.prepared["config"], serving or row or _nobody(move))
        try:
            begun = parts.starter.begin(instance, move.target, "incoming", None)
            parts.starter.launch(instance, begun, hold=True)
        except LaunchError as error:
            _go_elsewhere(move, move.target, error)
            raise


def _is_untold(move: Move) -> bool:
    """Whether the old process is there and still frozen; what arrived is in its rings."""
    old = move.peer("serving")
    return old is not None and old.phase() == "delivered"


def go_on_at(move: Move, location: str, why: str) -> None:
    """One process is to take the place of both, with the state as far as somebody has it: see `restart`."""
    report, kept = move.journal.report, move.fetch()
    report.restart_at, report.why = location, report.why or why
    if kept is None or location not in move.parts.local:
        report.lost_state = lost(move, why)
    elif report.mode == "copy" and move.journal.is_committed:
        report.lost_state = lost(move, f"{why}; what it changed after COMMIT was its own")
    move.journal.step(move.journal.migration.step if move.journal.is_committed else COMMIT)


def _go_elsewhere(move: Move, location: str, error: LaunchError) -> None:
    """After some failures to start a process at a location, start it at another one; after some there, give up."""
    report, parts = move.journal.report, move.parts
    report.failures += 1
    move.journal.note()  # who tries again counts on from what is written
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


def restart(move: Move) -> None:
    """Start what `go_on_at` has decided.

    Raises:
        AgentError: not all of it could be done; it can be called again.
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
        report.rolled_back_at = None  # it began to go back, and there was nowhere to go back to
    elif report.rolled_back_at is None:
        report.rolled_back_at = move.journal.migration.step
    move.take_over(outcome, report.why, running, None)


def lost(move: Move, why: str) -> dict[str, object]:
    """`Report.lost_state`."""
    _log.error("instance %s: state was lost: %s", move.instance.name, why)
    return {"why": why, "flows": move.journal.report.flows, "instances": [move.instance.id]}


def _nobody(move: Move) -> Running:
    raise LaunchError(f"migration {move.journal.epoch} of {move.instance.name} has no process at all")
