"""The outage of a migration, measured from answers of processes and switches."""

import contextlib
import json
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent.migrate import outage as measuring
from nfagent.migrate.outage import Outage
from tests.nfagent.world import wait_until

AGE_S = 100.0
_ROUNDING_S = 2e-6  # processes answer in whole microseconds
IN_STEP = threading.Event()
IN_STEP.set()


class Served:
    """A server on a unix socket, a thread per client."""

    def __init__(self, path: Path, handler: type[socketserver.StreamRequestHandler]) -> None:
        self._server = socketserver.ThreadingUnixStreamServer(str(path), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Process(Served):
    """Answers ``pauses`` with given spans; it started 100 s ago and serves."""

    def __init__(self, path: Path) -> None:
        self.began = time.monotonic() - AGE_S
        self.pauses: list[tuple[float, float | None]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    for _ in self.rfile:
                        outer.asked += 1
                        assert outer.goes_on.wait(30)
                        self.wfile.write(json.dumps({"ok": outer.told()}).encode() + b"\n")

        super().__init__(path, Handler)

    def told(self) -> dict[str, Any]:
        pauses = [[round(start * 1e6), None if end is None else round(end * 1e6)] for start, end in self.pauses]
        return {"age_us": round((time.monotonic() - self.began) * 1e6), "pauses_us": pauses}

    def close(self) -> None:
        self.goes_on.set()
        super().close()


class Bridge(Served):
    """Answers echo requests of OpenFlow while it forwards; `drops` ends the next one's connection, once."""

    def __init__(self, path: Path) -> None:
        self.forwards, self.drops = threading.Event(), threading.Event()
        self.forwards.set()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(struct.pack("!BBHI", 4, 0, 8, 0))
                    while len(head := self.rfile.read(8)) == 8:
                        kind, xid = head[1], head[4:]
                        assert outer.forwards.wait(30)
                        if outer.drops.is_set():
                            outer.drops.clear()
                            return
                        if kind == 2:
                            self.wfile.write(struct.pack("!BBH", 4, 3, 8) + xid)

        super().__init__(path, Handler)


@pytest.fixture
def process(directory: Path) -> Iterator[Process]:
    with contextlib.closing(Process(directory / "i.hypervisor.sock")) as made:
        yield made


@pytest.fixture
def bridge(directory: Path) -> Iterator[Bridge]:
    with contextlib.closing(Bridge(directory / "edge.mgmt")) as made:
        yield made


def clocks_differ_s(directory: Path, processes: int) -> float:
    """Wait until all processes are known; return how far comparing their clocks may be wrong.

    The agent learns a process's clock from answers that take time. Later answers only lower this bound.
    """

    def known() -> list[dict[str, float]]:
        return list(json.loads((directory / "migration.1").read_text())["processes"].values())

    wait_until(lambda: len(known()) == processes)
    return _ROUNDING_S + sum(each["high"] - each["low"] for each in known())


@contextlib.contextmanager
def measured(
    directory: Path,
    *,
    ago_s: float = 0.0,
    now: float | None = None,
    in_step: threading.Event = IN_STEP,
    single_threaded: bool = False,
) -> Iterator[Outage]:
    """Return a measurement that an earlier agent began."""
    file = directory / "migration.1"
    if ago_s:
        began = (now or time.monotonic()) - ago_s
        known = {"began": began, "own_s": None, "processes": {}, "away": [], "away_since": None}
        file.write_text(json.dumps(known))
    switches = [f"unix:{path}" for path in directory.glob("*.mgmt")]
    sockets = [directory / f"i.{place}.sock" for place in ("hypervisor", "snic0")]
    outage = Outage(
        sockets, switches, lambda: set(switches if single_threaded else ()), in_step.is_set, file, time.monotonic()
    )
    outage.start()
    yield outage
    outage.stop(ended=True)
    assert not file.exists()


def test_pauses_of_the_process_count_and_gaps_in_traffic_do_not(directory: Path, process: Process) -> None:
    process.pauses = [(80.0, 80.3), (90.0, 90.015), (95.0, 95.4)]
    with measured(directory, ago_s=50.0) as outage:
        assert outage.seconds() == pytest.approx(0.7, abs=0.001)


def test_a_freeze_counts_even_without_traffic(directory: Path, process: Process) -> None:
    process.pauses = [(80.0, 80.015)]
    with measured(directory, ago_s=50.0) as outage:
        assert outage.seconds(0.015) == 0.015
        assert outage.seconds(5.0) == 0.0  # the agent itself stalled
    process.pauses = [(0.0, None)]
    with measured(directory, ago_s=50.0) as outage:
        assert outage.seconds(5.0) == 5.0


def test_traffic_that_pauses_by_itself_has_longer_outages(directory: Path, process: Process) -> None:
    process.pauses = [(40.0 + number / 10, 40.1 + number / 10) for number in range(100)]
    process.pauses += [(60.0, 60.4), (70.0, 70.6)]
    with measured(directory, ago_s=50.0) as outage:
        assert outage.seconds() == pytest.approx(0.6, abs=0.001)


def test_the_outage_spans_from_the_old_process_to_the_new(directory: Path, process: Process) -> None:
    process.pauses = [(70.0, None)]
    with contextlib.closing(Process(directory / "i.snic0.sock")) as other:
        other.began = process.began
        other.pauses = [(0.0, 70.25)]
        with measured(directory, ago_s=50.0) as outage:
            bound_s = clocks_differ_s(directory, 2)
            assert outage.seconds() == pytest.approx(0.25, abs=bound_s)


def old_process_ended(directory: Path) -> tuple[Path, list[Path], float]:
    """Write a measurement whose old process ended 10 s ago; return its file, all sockets and the time."""
    file, now = directory / "migration.1", time.monotonic()
    sockets = [directory / f"i.{place}.sock" for place in ("hypervisor", "snic0")]
    ended = {"low": now - 99.0, "high": now - 99.0, "until": now - 10.0, "idle": []}
    known = {"began": now - 20.0, "own_s": 0.02, "processes": {str(sockets[0]): ended}, "away": [], "away_since": None}
    file.write_text(json.dumps(known))
    return file, sockets, now


def test_a_restarted_agent_finishes_the_measurement(directory: Path) -> None:
    file, sockets, now = old_process_ended(directory)
    with contextlib.closing(Process(sockets[1])) as process:
        process.began = now - 9.0
        process.pauses = [(0.0, 5.0)]
        outage = Outage(sockets, [], set, IN_STEP.is_set, file, time.monotonic())
        outage.start()
        bound_s = clocks_differ_s(directory, 2)
        assert outage.seconds() == pytest.approx(6.0, abs=bound_s)
        outage.stop(ended=False)
        assert file.exists()


def test_the_measurement_is_saved_for_the_next_agent(directory: Path, process: Process) -> None:
    process.pauses = [(80.0, 80.3)]
    file, socket = directory / "migration.1", directory / "i.hypervisor.sock"
    outage = Outage([socket], [], set, IN_STEP.is_set, file, time.monotonic())
    outage.start()
    wait_until(lambda: file.exists() and str(socket) in json.loads(file.read_text())["processes"])
    outage.stop(ended=False)
    assert json.loads(file.read_text())["began"] >= process.began + AGE_S


def test_a_full_disk_does_not_end_the_measurement(directory: Path, process: Process) -> None:
    (directory / "migration.1.new").mkdir()  # cannot be written
    process.pauses = [(80.0, 80.3)]
    with measured(directory, ago_s=50.0) as outage:
        asked = process.asked
        wait_until(lambda: process.asked > asked + 20)  # it has tried to write, which happens after about five answers
        assert outage.seconds() == pytest.approx(0.3, abs=0.001)


def test_an_ended_process_counts_as_an_outage(directory: Path) -> None:
    file, sockets, now = old_process_ended(directory)
    outage = Outage(sockets, [], set, IN_STEP.is_set, file, time.monotonic())
    outage.start()
    assert 10.0 <= outage.seconds() <= time.monotonic() - now + 10.0
    outage.stop(ended=True)


def test_the_new_process_alone_determines_an_outage(directory: Path, process: Process) -> None:
    now = time.monotonic()
    process.began = now - 10.0
    process.pauses = [(0.0, 4.0)]
    with measured(directory, ago_s=20.0, now=now) as outage:
        bound_s = clocks_differ_s(directory, 1)
        assert outage.seconds() == pytest.approx(14.0, abs=bound_s)


def test_a_truncated_file_restarts_the_measurement(directory: Path, process: Process) -> None:
    (directory / "migration.1").write_text('{"began": 1.0, "own_s')
    with measured(directory) as outage:
        assert outage.seconds() == 0.0
        asked = process.asked
        wait_until(lambda: process.asked > asked + 10)
        assert outage.seconds() == 0.0


def test_no_traffic_means_no_visible_outage(directory: Path, process: Process) -> None:
    process.pauses = [(0.0, None)]
    with measured(directory, ago_s=50.0) as outage:
        assert outage.seconds() == 0.0


def test_a_hanging_process_is_an_outage_even_without_traffic(directory: Path, process: Process) -> None:
    process.goes_on.clear()
    start = time.monotonic()
    with measured(directory) as outage:
        wait_until(lambda: outage.seconds() > 1.0)
        assert outage.seconds() <= time.monotonic() - start


def test_a_pause_between_request_and_start_counts(directory: Path, process: Process) -> None:
    process.pauses = [(95.0, 95.4), (98.0, 99.5)]
    outage = Outage([directory / "i.hypervisor.sock"], [], set, IN_STEP.is_set, directory / "m", process.began + 97.0)
    outage.start()
    assert outage.seconds() == pytest.approx(1.5, abs=0.001)
    outage.stop(ended=True)


def test_a_process_dead_from_the_start_is_an_outage(directory: Path) -> None:
    with measured(directory) as outage:
        wait_until(lambda: outage.seconds() > 0.0)


def test_a_switch_counts_as_away_until_it_has_its_rules(directory: Path, process: Process, bridge: Bridge) -> None:
    in_step, start = threading.Event(), time.monotonic()
    with measured(directory, in_step=in_step) as outage:
        wait_until(lambda: process.asked > 5)
        assert outage.seconds() == 0.0
        bridge.forwards.clear()
        wait_until(lambda: outage.seconds() > 0.0)
        bridge.drops.set()
        bridge.forwards.set()
        wait_until(lambda: not bridge.drops.is_set())
        before = outage.seconds()
        wait_until(lambda: outage.seconds() > before)
        in_step.set()
        asked = process.asked
        wait_until(lambda: process.asked > asked + 20)
        after = outage.seconds()
        assert before < after < time.monotonic() - start
        wait_until(lambda: process.asked > asked + 40)
        assert outage.seconds() == after


def test_a_switch_that_was_silent_has_its_rules_if_packets_arrive(
    directory: Path, process: Process, bridge: Bridge
) -> None:
    with measured(directory, in_step=threading.Event()) as outage:
        wait_until(lambda: process.asked > 5)
        bridge.forwards.clear()
        wait_until(lambda: outage.seconds() > 0.0)
        bridge.forwards.set()
        asked = process.asked
        wait_until(lambda: process.asked > asked + 20)
        after = outage.seconds()
        wait_until(lambda: process.asked > asked + 40)
        assert outage.seconds() == after > 0.0


def test_a_disconnected_switch_counts_as_away_although_packets_arrive(directory: Path, process: Process) -> None:
    with measured(directory) as outage, contextlib.closing(Process(directory / "i.snic0.sock")):
        assert outage.seconds() == 0.0
    (directory / "edge.mgmt").touch()
    with measured(directory) as outage:
        wait_until(lambda: outage.seconds() > 0.0)


def test_a_slow_switch_that_forwards_is_not_away(
    directory: Path, process: Process, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nfagent.migrate.outage._LATE_S", 600.0)  # 15 answers may take long on a busy machine
    with measured(directory) as outage:
        asked = process.asked
        wait_until(lambda: process.asked > asked + 5)
        bridge.forwards.clear()
        asked = process.asked
        wait_until(lambda: process.asked > asked + 15)
        bridge.forwards.set()
        wait_until(lambda: process.asked > asked + 30)
        assert outage.seconds() == 0.0


def test_a_slow_switch_whose_only_thread_forwards_is_away(
    directory: Path, process: Process, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nfagent.migrate.outage._LATE_S", 600.0)
    with measured(directory, single_threaded=True) as outage:
        asked = process.asked
        wait_until(lambda: process.asked > asked + 5)
        bridge.forwards.clear()
        wait_until(lambda: outage.seconds() > 0.0)
        bridge.forwards.set()


class Clock:
    """Stands in for the module `time`: a look takes a millisecond, and so does a wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Probe:
    """Stands in for `PausesPulse`; it answers its ``at``-th look, if any."""

    def __init__(self, clock: Clock, at: int | None, answer: bytes = b"", *, is_lost: bool = False) -> None:
        self.clock, self.at, self.answer, self.is_lost = clock, at, answer, is_lost
        self.asked = self.answered = self.heard = 0.0
        self.looks = 0

    def look(self) -> bytes | None:
        self.looks += 1
        self.clock.now += 0.001
        if self.looks != self.at:
            return None
        self.answered = self.heard = self.clock.now
        self.asked = self.clock.now - 0.002
        return self.answer

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=made.monotonic, sleep=made.sleep))
    return made


def probed(directory: Path, **probes: Probe) -> Any:
    made: Any = Outage([], [], set, IN_STEP.is_set, directory / "migration.1", time.monotonic())
    made._processes = probes
    return made


def answer(age_s: float, *pauses: tuple[float, float]) -> bytes:
    microseconds = [[round(start * 1e6), round(end * 1e6)] for start, end in pauses]
    return json.dumps({"ok": {"age_us": round(age_s * 1e6), "pauses_us": microseconds}}).encode()


def test_a_query_ends_when_all_processes_have_answered_it_or_are_lost(directory: Path, clock: Clock) -> None:
    early, late, lost = Probe(clock, 1), Probe(clock, 3), Probe(clock, None, is_lost=True)
    probed(directory, early=early, late=late, lost=lost)._ask_now()
    assert (early.looks, late.looks, lost.looks) == (3, 3, 3)
    assert clock.slept == [0.001, 0.001]
    alone = Probe(clock, None, is_lost=True)
    probed(directory, alone=alone)._ask_now()
    assert alone.looks == 1


def test_a_query_of_a_silent_process_ends_in_time(directory: Path, clock: Clock) -> None:
    silent, start = Probe(clock, None), clock.now
    silent.answered = start  # to an earlier query
    probed(directory, silent=silent, other=Probe(clock, 1))._ask_now()
    assert 0.1 <= clock.now - start < 0.105
    stopped = probed(directory, silent=silent)
    stopped._stopping.set()
    before = silent.looks
    stopped._ask_now()
    assert silent.looks == before


def test_answers_are_kept_by_process_and_invalid_ones_ignored(directory: Path, clock: Clock) -> None:
    pauses = [(50.0 + number / 10, 50.03 + number / 10) for number in range(490)]
    probes = {
        "silent": Probe(clock, None),
        "broken": Probe(clock, 1, b"{}"),
        "short": Probe(clock, 1, b"["),
        "busy": Probe(clock, 1, answer(100.0, *pauses)),
        "later": Probe(clock, 1, answer(100.0)),
    }
    outage = probed(directory, **probes)
    outage._look_at_processes()
    known = outage._known
    assert list(known.processes) == ["busy", "later"]
    assert outage._looked == 1000.0
    busy = known.processes["busy"]
    assert busy.high - busy.low == pytest.approx(0.002)
    assert busy.until == pytest.approx(clock.now - 0.001, abs=0.001)
    # The first process with traffic determines how long a pause counts.
    assert known.own_s == pytest.approx(busy.own_pause_s(known.began))
    assert known.own_s != measuring._PAUSE_S
    # A later answer refines what is known of the process.
    probes["busy"].at, probes["busy"].answer = 2, answer(100.0055, *pauses)
    outage._look_at_processes()
    assert known.processes["busy"].high - known.processes["busy"].low < busy.high - busy.low
    assert known.processes["busy"].until > busy.until


def test_pauses_shorter_than_the_least_visible_one_never_count(directory: Path, clock: Clock) -> None:
    outage = probed(directory, idle=Probe(clock, 1, answer(100.0)))
    outage._look_at_processes()
    assert outage._known.own_s == measuring._PAUSE_S
