"""Decides where instances run: periodically, after changes, and on request."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.config import DecideConfig
from nfagent.decide.carrying_out import CarryingOut, InstanceMove
from nfagent.decide.demand import Moment
from nfagent.decide.latest import Latest
from nfagent.decide.setbacks import Setbacks
from nfagent.decide.situation import APART, Situation, fits, situation
from nfagent.decide.together import Together
from nfagent.decide.window import Window
from nfagent.decide.wishes import Wishes
from nfagent.decide.words import Words
from nfagent.errors import ConflictError, UnavailableError
from nfagent.measurement import Measurement
from nfagent.model import Decision, Event, Instance
from nfagent.monitor.layout import Layout
from nfagent.protocols import Fitness, Monitor
from nfagent.store import Store, chains, decisions, events, instances, processes
from nfagent.store.instances import Filter
from placement import PlacementError, Plan, Problem, solve
from placement.damper import OVERLOAD
from placement.errors import InfeasibleError

_log = logging.getLogger(__name__)

_BATCH = 500
_SPACING_S = 0.2  # minimum time between two checks
_SPARING = 9.0  # pause after a check, per CPU time of it, while something happens all the time
_SPACING_MAX_S = 2.0
_AGAIN_S = 5.0  # retry interval after a failure to plan, without changes
_STOP_S = 10.0
_SETTLE_S = 5.0  # how long the host's CPU is measured after a decision
_URGENT = (
    "chain.created",
    "instance.created",
    "instance.deleting",
    "instance.deleted",
    "instance.pinned",
    "instance.described",
    "process.active",
    "process.gone",
    "migration.ended",
    "location.",
    "placement.unfit",
    "placement.fit",
)


class PlacementDecider:
    """See `nfagent.protocols.Decider`.

    Args:
        store: contains instances and decisions.
        catalog: of kinds and flavors.
        capacity: of the locations, the hypervisor first.
        monitor: the measurements.
        layout: locations of ports; None: oneswitchd does not answer, so nothing is decided.
        down: returns the locations where nothing can be started.
        fitness: of the locations for instances.
        settings: ``[decide]``.
        clock: seconds of a steady clock.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        capacity: Mapping[str, Capacity],
        monitor: Monitor,
        layout: Callable[[], Layout | None],
        down: Callable[[], frozenset[str]],
        fitness: Fitness,
        settings: DecideConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._capacity = dict(capacity)
        self._monitor = monitor
        self._layout = layout
        self._down = down
        self._fitness = fitness
        self._settings = settings
        self._clock = clock
        self._window = Window(settings.window, settings.eps, settings.crossing_us)
        self._setbacks = Setbacks(store)
        self._wishes = Wishes(store, settings.crossing_us, clock)
        self._together = Together(
            store, catalog, self._capacity, layout, lambda: self._known_down, fitness, settings.crossing_us
        )
        self._everything: Situation | None = None  # including dropped wishes
        self._known_down: frozenset[str] = frozenset()
        self._taken_at = 0.0
        self._latest: Latest | None = None
        self._carrying: CarryingOut | None = None
        self._before: int | None = None
        self._settling: tuple[float, CarryingOut] | None = None
        self._conflict: str | None = None  # conflict of limits, as reported; None: none
        self._fault: str | None = None  # fault of the optimiser, as logged
        self._again_at = 0.0
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="decide", daemon=True)

    def start(self) -> None:
        """Start. The reconciler finishes what an earlier agent decided but did not finish."""
        for identity in decisions.unfinished(self._store.read):
            with self._store.change() as change:
                decisions.end(change, identity, "interrupted", {"reason": "the agent was restarted"})
        self._thread.start()

    def stop(self) -> None:
        """Stop; current migrations continue."""
        self._stopping.set()
        self._store.end_waits()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    # ---- questions

    def place(self, instance: Instance) -> str:
        """Return where a new instance starts: on the hypervisor, as its traffic is unknown; else where it fits.

        Those that were ordered with a chain are placed together.
        """
        together = self._together.place(instance)
        if together is not None:
            return together
        kind = self._catalog.kinds.get(instance.kind)
        unfit: list[str] = []
        for location, capacity in self._capacity.items():
            taken = processes.taken_slots(self._store.read, location)
            if location in self._known_down or not fits(capacity, len(instance.ports), taken):
                continue
            if location != self._home and self._has_rival(instance, location):
                continue
            why = kind and self._fitness.look(kind, instance.config, len(instance.ports), location)
            if not why:
                return location
            unfit.append(why)
        needs = "".join(f"; {why}" for why in unfit)
        raise UnavailableError(
            "no-room", f"no location is up and has a free slot with {len(instance.ports)} interface(s){needs}"
        )

    def _has_rival(self, instance: Instance, location: str) -> bool:
        if APART not in instance.labels:
            return False
        others = instances.views(self._store.read, Filter(project=instance.project, location=location))
        return any(other.instance.labels.get(APART) == instance.labels[APART] for other in others)

    def proposal(self) -> Decision:
        return self._said().decision()

    def why(self, instance: Instance) -> dict[str, Any]:
        return self._said().why(instance)

    def left_out(self) -> dict[str, str]:
        return self._wishes.left_out()

    def dry_run(self, pins: dict[str, str], without: list[str]) -> Decision:
        with self._lock:
            now = self._look()
            if now is None:
                raise UnavailableError("no-decision", "no decision is possible yet: oneswitchd does not answer")
            for instance, pin in pins.items():
                function = now.function(instance)
                if function is None:
                    found = instances.find(self._store.read, instance)
                    named = repr(found.name) if found else instance
                    raise ConflictError("instance-not-active", f"instance {named} is not running, so no plan covers it")
                if pin in function.unfit and pin != function.location:
                    detail = f"instance {function.name!r} cannot run at {pin}: {function.unfit[pin]}"
                    raise ConflictError("location-unfit", detail)
            asked = now.narrowed(pins, without)
            problem, moment = self._window.problem_of(asked), self._window.newest
        try:
            answer = self._answer(asked, problem, moment).decision()
            now_at = {each.instance: each.location for each in asked.functions}
            # The optimiser takes a pinned function to be at its pin already.
            pinned = [each for each, at in answer.plan.items() if at != now_at[each] and each not in answer.moves]
            return replace(answer, moves=(*pinned, *answer.moves))
        except PlacementError as error:
            raise UnavailableError("no-decision", Words(asked).say(str(error))) from error

    def _answer(self, asked: Situation, problem: Problem, moment: Moment) -> Latest:
        reason = "hypothetical; nothing is carried out"
        try:
            return Latest(asked, moment, solve(problem, asked.current(), self._settings.eps), reason)
        except InfeasibleError as error:
            return Latest(asked, moment, None, reason, refusal=_refusal(asked, error))

    def _said(self) -> Latest:
        if self._latest is None:
            raise UnavailableError("no-decision", "no decision yet: no measurement so far")
        return self._latest

    # ---- deciding

    def _run(self) -> None:
        last, due = self._store.last_event, time.monotonic()
        while not self._is_ending():
            begun = time.thread_time()
            try:
                urgent, last = self._await(last, due)
                if time.monotonic() >= due:
                    due = max(due + self._settings.period_s, time.monotonic())
                if self._is_ending():
                    return
                self.step(urgent=urgent)
            except Exception:  # noqa: BLE001  a fault in one decision must not end deciding
                _log.exception("internal error in a decision")
            spent = time.thread_time() - begun
            self._stopping.wait(max(_SPACING_S, min(_SPARING * spent, _SPACING_MAX_S)))

    def _await(self, last: int, due: float) -> tuple[bool, int]:
        """Wait until the period is over, or something that may change the plan has happened."""
        while not self._is_ending():
            found, last = events.since(self._store, last, _BATCH, None)
            if any(_is_urgent(event) for event in found):
                return True, last
            left = due - time.monotonic()
            if left <= 0:
                return False, last
            self._store.wait(last, left, _URGENT)
        return False, last

    def _is_ending(self) -> bool:
        return self._stopping.is_set() or self._store.is_ending

    def step(self, *, urgent: bool = False) -> None:
        """Read what is new; continue the current decision, or decide.

        Args:
            urgent: something has happened; decide at once.
        """
        with self._lock:
            measured, now = self._monitor.newest(), self._look()
            if measured is None or now is None:
                return
            relearnt = self._window.costs.learn(self._monitor.coefficients())
            changed = self._window.face(now, relearnt=relearnt)
            complete = self._take(now, measured)
            self._finish(measured)
            if self._go_on(now):
                return
            first = self._latest is None
            breaks = self._window.breaks()
            if not (complete or urgent or changed or first or breaks):
                return
            has_plan = self._conflict is None and self._fault is None
            if not has_plan and not changed and self._clock() < self._again_at:
                return
            if complete or first or breaks:
                # Not after clients' changes: frequent ones would leave only the last seconds in the window.
                self._window.close()
            self._decide(now, measured)

    def _look(self) -> Situation | None:
        layout = self._layout()
        if layout is None:
            return None
        down = self._known_down = self._down()
        self._setbacks.look()
        views = instances.views(self._store.read, Filter())
        every_chain = chains.page(self._store.read, None, None, None)
        held = self._setbacks.held
        self._everything = situation(
            views, every_chain, self._catalog, self._capacity, layout, down, held, self._fitness.lacks
        )
        return self._wishes.apply(self._everything)

    def _take(self, now: Situation, measured: Measurement) -> bool:
        names = {each.instance: each.name for each in now.functions}
        for instance in self._setbacks.take_moved():
            if instance in names:
                self._window.rest(names[instance])
        if measured.at <= self._taken_at:
            return False
        self._taken_at = measured.at
        return self._window.take(now, measured)

    def _decide(self, now: Situation, measured: Measurement) -> None:
        moment = self._window.newest
        try:
            now, plan = self._plan(now)
        except PlacementError as error:
            self._fail(now, Words(now).say(str(error)))
            return
        except Exception as error:  # noqa: BLE001  solvers are others' code, and what they raise is to be seen in REST
            self._fail(now, f"internal error of the optimiser: {error!r}", trace=error)
            return
        self._fault = None
        if plan is None:
            return
        if self._everything is not None:
            self._wishes.settle(self._everything)
        if self._conflict is not None:
            with self._store.change() as change:
                change.event("placement.feasible", "placement", None, {})
            self._conflict = None
        first = self._latest is None
        if self._settings.enabled:
            latest = Latest(now, moment, plan, self._window.reason, self._window.problem)
            if not self._window.is_full:
                latest.waits = (
                    f"{self._settings.window} periods of traffic must be seen before anything moves for a gain"
                )
        else:
            latest = Latest(now, moment, plan, "only a proposal: [decide] enabled is false")
        latest.left_out = self._wishes.listed()
        wanted = self._settings.enabled and (self._window.is_full or self._window.reason == OVERLOAD)
        moves = _steps(now, plan) if wanted else ()
        if first or moves:
            self._write(latest, moves, measured)
        self._latest = latest

    def _plan(self, now: Situation) -> tuple[Situation, Plan | None]:
        """Return a plan and its situation, without wishes that cannot be satisfied.

        None: no placement satisfies all limits, which was reported; raises the window's exceptions for other reasons.
        """
        decide = self._window.decide if self._settings.enabled else self._window.propose
        try:
            try:
                return now, decide()
            except InfeasibleError:
                lighter = self._wishes.relax(now, self._window.is_possible)
                if lighter is None:
                    raise
                now = lighter
                self._window.face(now, relearnt=False)
                return now, decide()
        except InfeasibleError as error:
            self._refuse(now, error)
            return now, None

    def _fail(self, now: Situation, reason: str, trace: Exception | None = None) -> None:
        """Report a failure to decide; everything stays, and the next period tries again."""
        self._again_at = self._clock() + _AGAIN_S
        if self._fault != reason:
            _log.warning("cannot decide, so nothing moves: %s", reason, exc_info=trace)
        self._fault = reason
        self._latest = Latest(now, self._window.newest, None, reason)

    def _refuse(self, now: Situation, error: InfeasibleError) -> None:
        """Report once that no placement satisfies all limits; everything stays."""
        self._again_at = self._clock() + _AGAIN_S
        refusal = _refusal(now, error)
        conflict = "; ".join(refusal["conflict"])
        self._latest = Latest(now, self._window.newest, None, refusal["reason"], refusal=refusal)
        if self._conflict != conflict:
            with self._store.change() as change:
                change.event("placement.infeasible", "placement", None, refusal)
            self._conflict = conflict

    def _write(self, latest: Latest, moves: tuple[InstanceMove, ...], measured: Measurement) -> None:
        decision = latest.decision()
        with self._store.change() as change:
            written = decisions.add(
                change, decision.problem, decision.plan, decision.explanation, tuple(move.instance for move in moves)
            )
            if not moves:
                decisions.end(change, written.id, "unchanged", {})
        latest.identity = written.id
        if moves:
            self._finish(measured, at_once=True)
            self._before = _host_millicores(measured, self._home)
            self._carrying = CarryingOut(self._store, written.id, moves)
            self._carrying.advance(self._known_down)

    # ---- carrying out

    @property
    def _home(self) -> str:
        return next(iter(self._capacity))

    def _go_on(self, now: Situation) -> bool:
        """Return whether moves are in progress, or have just ended: the next decision must see their result."""
        if self._carrying is None:
            return False
        self._carrying.advance(now.down)
        if self._carrying.is_over:
            self._settling = (self._clock() + _SETTLE_S, self._carrying)
            self._carrying = None
        return True

    def _finish(self, measured: Measurement, *, at_once: bool = False) -> None:
        """Record the outcome of a decision, once the host's CPU shows it."""
        if self._settling is None or (self._clock() < self._settling[0] and not at_once):
            return
        _, done = self._settling
        report: dict[str, Any] = {
            "moves": done.moves,
            "host_millicores_before": self._before,
            "host_millicores_after": _host_millicores(measured, self._home),
        }
        with self._store.change() as change:
            decisions.end(change, done.decision, done.result, report)
        self._settling = None


def _refusal(now: Situation, error: InfeasibleError) -> dict[str, Any]:
    """Return why no placement satisfies all limits; raises `PlacementError` if the search fails."""
    return Words(now).infeasible(error.report, {each.instance: each.location for each in now.functions})


def _steps(now: Situation, plan: Plan) -> tuple[InstanceMove, ...]:
    ids = {each.name: each.instance for each in now.functions}
    return tuple(
        InstanceMove(ids[move.nf], move.nf, now.locations[move.source], now.locations[move.target])
        for move in plan.moves
    )


def _host_millicores(measured: Measurement, home: str) -> int | None:
    return measured.locations[home].millicores if home in measured.locations else None


def _is_urgent(event: Event) -> bool:
    return event.type.startswith(_URGENT)
