"""The steps forward: until COMMIT any failure rolls back; from there on they always reach the end.

nfs/README.md, "Migration", describes the verbs; docs/nfagent.md the journalled steps. Each effect is within
`Journal.timed`, after the step that covers it was written.
"""

import contextlib
import contextvars
import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nfagent.budgets import COPY_S, DRAIN_S, HANDOVER_S, PASS_S, RELAY_S, STOP_S
from nfagent.errors import ControlRefusedError, ControlUnreachableError, WiringError
from nfagent.migrate.beside import Beside
from nfagent.migrate.journal import COMMIT
from nfagent.migrate.keepers import Kept
from nfagent.migrate.move import RunningMigration, TurnBackError
from nfagent.migrate.peer import PATIENCE_S, Peer, PeerGoneError
from nfagent.migrate.switching import unused_number
from nfagent.model import InstancePort, Running

_log = logging.getLogger(__name__)

_MARGIN_S = 10.0
_MARKER_MS = 50  # packets wait while a marker is lost
_DRAIN_MS = 300
_DRAIN: dict[str, Any] = {"timeout_ms": _DRAIN_MS, "timeout_s": _DRAIN_MS / 1000 + _MARGIN_S}
_FIT_BYTES = 1 << 20
_HAND_OVER = 3  # version of the processes' hand-over
_PAUSE_S = 0.05
_NUMBERS = 1000  # more than a migration has markers at a time
_TRIES, _TRY_MS = 10, round(PASS_S * 100)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Postpone Python's garbage collection, which takes longer than all else that packets wait for."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# ---- before COMMIT


def prepare(move: RunningMigration) -> None:
    """Start a holding process at the target, secure the state's memory, and install rules for the new interfaces.

    Raises:
        TurnBackError, AgentError: it failed.
    """
    move.journal.report.mode = "memfd" if move.is_local and not move.parts.copies else "copy"
    move.journal.step("prepare")
    old, starter = move.need("serving"), move.parts.starter
    if not starter.is_connected(move.instance, old.running):
        starter.serve(move.instance, old.running)
    with move.journal.timed("prepare"):
        row = starter.begin(move.as_running({}, old.running), move.target, "incoming", None)
        answer = old.exchange("prepare", secret=move.journal.secret)
        prepared = answer.value
        move.keep(Kept(prepared, answer.descriptors))
    if prepared.get("hand_over") != _HAND_OVER:
        raise TurnBackError(
            "its process is of another version of nf, which hands over differently; it goes on where it is, and can"
            " move once it has been started again, without its state (unoctl nf delete, create)"
        )
    move.journal.report.flows = old.flows()
    move.journal.report.state_bytes = prepared["bytes"]
    with move.journal.timed("start"):
        starter.launch(move.as_running(prepared["config"], old.running), row, hold=True)
    with move.journal.timed("rules"):
        for port, edge in starter.wires(move.instance, row):
            move.parts.switching.prepare(port, move.target, edge)
    with move.journal.timed("await-rules"):
        # Packets would wait for these two after the hand-over, and changes of the state after the pre-copy.
        move.marking()
        move.parts.switching.await_settled()
    if move.journal.report.mode == "memfd":
        with move.journal.timed("hold"):
            hold(move, move.need("incoming"))
    else:
        copy(move, old, move.need("incoming"), prepared)


def hold(move: RunningMigration, new: Peer) -> None:
    """Hand the state's memory to the new process, which uses it from `commit` on."""
    kept = move.fetch()
    if kept is None:
        raise TurnBackError("the state's memory is lost")
    new.ask("hold", mode="memfd", descriptors=kept.descriptors, **_passed_on(move, kept.prepared))


def _passed_on(move: RunningMigration, prepared: dict[str, Any]) -> dict[str, Any]:
    """Return what the new process needs of the old one's answer.

    ``sealed`` is encrypted with the migration's secret; it must not be written to the disk, which has that secret.
    """
    return {"rings": prepared["rings"], "secret": move.journal.secret, "sealed": prepared.get("sealed")}


def copy(move: RunningMigration, old: Peer, new: Peer, prepared: dict[str, Any]) -> None:
    """Send the state while packets are processed, until little remains."""
    move.journal.step("precopy")
    report = move.journal.report
    arguments: dict[str, Any] = {}
    if move.parts.rate_mbps is not None:
        report.rate_mbps = arguments["rate_mbps"] = move.parts.rate_mbps
    with move.journal.timed("hold"):
        held = new.ask("hold", mode="copy", listen=move.listen(), **_passed_on(move, prepared))
    with move.journal.timed("precopy"):
        done = old.ask("precopy", timeout_s=COPY_S, to=held["address"], fit_bytes=_FIT_BYTES, **arguments)
    report.rounds, report.state_bytes = done["rounds"], done["bytes"]


def hand_over(move: RunningMigration) -> None:
    """Have the old process give the right to send to the new one, directly: packets wait meanwhile.

    The processes decide; the step COMMIT records what they have decided. If anything fails before that is written,
    `recover.is_given` asks them.

    Raises:
        TurnBackError, AgentError: it failed before COMMIT was written, as `Journal.is_committed` tells.
    """
    journal, old, new = move.journal, move.need("serving"), move.need("incoming")
    with journal.timed("try-way"):
        markers = _try_way(old, new)  # both connections are open now
        move.quiescing()
    move.require_wanted()
    move.parts.store.checkpoint()
    journal.step("freeze")
    first = unused_number()
    with journal.timed("freeze"):
        taken = _begin_to_take(new.again(), first, markers)
        given = old.ask("give", first=first)
        told = taken.result()
    journal.report.freeze_us = given["freeze_us"]
    if journal.report.mode == "copy":
        journal.report.state_bytes = (journal.report.state_bytes or 0) + given["bytes"]
    if why := told.get("unpassed"):
        _log.warning("packets of the old process may not have passed the switches: %s", why)
        journal.report.waits = f"a switch between {move.source} and {move.target} is stalled: {why}"
    with journal.timed(COMMIT):
        # On one machine, whatever ends the machine ends both processes and their state, so this need not wait for the
        # disk.
        journal.step(COMMIT, outlives="process" if move.is_local else "machine")


def _try_way(old: Peer, new: Peer) -> int:
    """Have the old process send markers to the new one, and return how many it sends.

    The markers flush the backlog of a switch that was stalled, and put their path into the switches' caches.

    Raises:
        TurnBackError: they do not arrive.
    """
    first, why = unused_number(), ""
    for _ in range(_TRIES):
        markers = old.ask("mark", first=first)["markers"]
        try:
            new.ask("marked", first=first, markers=markers, timeout_ms=_TRY_MS)
        except ControlRefusedError as error:
            if error.code != "timeout":
                raise
            why = error.detail
        else:
            return markers
    raise TurnBackError(f"markers from its old process do not reach the new one, so a switch is stalled: {why}")


def _begin_to_take(new: Peer, first: int, markers: int) -> Future[dict[str, Any]]:
    """Have the new process wait for the right to send, and for markers numbered from ``first`` on.

    Nothing waits for its answer if the old process fails: it ends when the old process has thawed, or with the new one.
    """
    limit_s = PATIENCE_S + _MARGIN_S  # longer than the old process takes
    limit: dict[str, Any] = {"timeout_ms": round(limit_s * 1000), "timeout_s": limit_s + _MARGIN_S}

    def take() -> dict[str, Any]:
        with contextlib.closing(new):
            return new.ask("commit", first=first, markers=markers, **limit)

    beside = ThreadPoolExecutor(1)
    taken = beside.submit(contextvars.copy_context().run, take)
    beside.shutdown(wait=False)
    return taken


# ---- from COMMIT on: each can be repeated, even after the new process was replaced


def settle(move: RunningMigration) -> None:
    """Tell both processes of the commit, as far as they are running.

    Raises:
        PeerGoneError: the new one is not running.
        AgentError: it can continue later.
    """
    new = move.need("incoming")
    with move.journal.timed("settle"):
        if new.phase() in ("none", "waiting"):
            hold(move, new)
        # If it replaced a dead process, changes of that one may be half done.
        new.ask("commit", given=True, repair=move.journal.report.replaced)
        old = move.peer("serving")
        if old is None:
            new.ask("orphaned")
            return
        try:
            old.ask("commit")
        except PeerGoneError:
            new.ask("orphaned")


@_undisturbed()
def switch_over(move: RunningMigration) -> None:
    """Point the switches to the new process, until everything sent by the old paths has arrived and was relayed."""
    move.journal.reach("flip")
    new = move.need("incoming")
    with Beside(move) as beside:
        with move.journal.timed("flip"):
            _flip_all(move, new.running)
        beside.note_flipped()
        with move.journal.timed("quiesce"):
            move.quiescing().wait()
        beside.note_quiet()
        _drain(move)


def _flip_all(move: RunningMigration, new: Running) -> None:
    """Flip all ports at a time: packets wait from the first one on."""

    def flip_one(wire: tuple[InstancePort, str]) -> None:
        port, edge = wire
        move.parts.switching.flip(port, new.location, edge)

    wires = move.parts.starter.wires(move.instance, new)
    with ThreadPoolExecutor(max(1, len(wires))) as pool:
        others = [pool.submit(contextvars.copy_context().run, flip_one, wire) for wire in wires[1:]]
        for wire in wires[:1]:
            flip_one(wire)  # usually the only one, without the time that a thread takes
    for each in others:
        each.result()


def _drain(move: RunningMigration) -> None:
    new, old = move.known("incoming") or move.need("incoming"), move.known("serving") or move.peer("serving")
    with move.journal.timed("drain"):
        if old is not None:
            try:
                _drain_old(move, old)
            except PeerGoneError as gone:
                if gone.role != "serving":
                    raise
                old = None
        if old is None or move.journal.report.replaced:
            # The writer of the rings is dead, or the dead process may have read their ends.
            new.ask("orphaned")
    with move.journal.timed("handover"):
        timeout_ms = round(HANDOVER_S * 1000)
        done = new.ask("handover", timeout_ms=timeout_ms, timeout_s=HANDOVER_S + _MARGIN_S)
    move.journal.report.relayed = done["relayed"]


def _drain_old(move: RunningMigration, old: Peer) -> None:
    """Let the old process relay until markers show that nothing older can follow, or the time limit expires."""
    began, first = time.monotonic(), unused_number()
    if (why := _drain_at_once(move, old, first)) is None:
        return
    while (spent := time.monotonic() - began) < DRAIN_S + RELAY_S:
        first, paths = first + _NUMBERS, 0  # higher ones, since a wait discards lower ones
        try:
            if spent < DRAIN_S:
                paths, why = _mark(move, first), ""
            elif why and move.journal.report.undrained is None:
                _note_undrained(move, why)
            old.ask("drain", first=first, paths=paths, **_DRAIN)
        except WiringError as error:
            why = str(error)
            if old.phase() == "gone":
                return  # it has already answered
            time.sleep(_PAUSE_S)
        except ControlRefusedError as error:
            if error.code not in ("timeout", "busy"):
                raise
            why = why or error.detail  # a marker was lost: repeat
        else:
            return
    # Packets at the new process wait for this end, whatever delays it.
    ended = f"the old process did not end its relay within {DRAIN_S + RELAY_S:g} s and was killed: {why}"
    move.journal.report.undrained = ended
    move.parts.starter.kill(old.running, ended)
    raise PeerGoneError("serving", ended)


def _drain_at_once(move: RunningMigration, old: Peer, first: int) -> str | None:
    """Have the old process wait for the markers before they are sent; return why it has not ended then.

    The processes do the rest by themselves, so packets do not wait for this one.
    """
    try:
        marking = move.marking()
        if not marking.paths:
            return "oneswitchd does not tell the old paths beforehand"
        with old.begun(
            "drain", first=first, paths=marking.paths, timeout_ms=_MARKER_MS, timeout_s=_MARGIN_S
        ) as drained:
            marking.send(first)
            drained()
    except (WiringError, ControlUnreachableError) as error:
        move.end_marking()
        return str(error)
    except ControlRefusedError as error:
        if error.code not in ("timeout", "busy"):
            _note_undrained(move, error.detail)
        return error.detail
    return None


def _note_undrained(move: RunningMigration, why: str) -> None:
    _log.warning("migration %d of instance %s: %s", move.journal.epoch, move.instance.name, why)
    move.journal.report.undrained = why


def _mark(move: RunningMigration, first: int) -> int:
    """Send markers down the old paths; returns how many."""
    try:
        return move.marking().send(first)
    except WiringError:
        move.end_marking()
        raise


def finish(move: RunningMigration) -> None:
    """End the old process, to which nothing leads any more."""
    move.journal.reach("done")
    new = move.need("incoming")
    with move.journal.timed("done"):
        for port, edge in move.parts.starter.wires(move.instance, new.running):
            move.parts.switching.finish(port, new.running.location, edge)
        old = move.row("serving")
        old = old and move.halt(old, STOP_S)
    # While the state is kept, the new process may die; from here on its death loses the state, as for any instance.
    new = move.need("incoming")
    new.phase()
    move.take_over("done", None, new.running, old)
