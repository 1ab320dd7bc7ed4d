"""The outage of a migration, measured by what processes and switches answer."""

import contextlib
import json
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent.migrate.outage import Outage
from tests.nfagent.world import wait_until


class Counting:
    """A process that sends a packet every 2 ms while it serves, and answers ``status``."""

    def __init__(self, path: Path) -> None:
        self.count = self.batches = self.received = 0
        self.serves, self.receives = threading.Event(), threading.Event()
        self._ends = threading.Event()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for _ in self.rfile:
                    with contextlib.suppress(OSError):
                        self.wfile.write(json.dumps({"ok": outer.status()}).encode() + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True
        self._threads = [threading.Thread(target=self._server.serve_forever), threading.Thread(target=self._send)]
        for thread in self._threads:
            thread.start()

    def status(self) -> dict[str, int]:
        return {"packets_out": self.count, "batches": self.batches, "packets_in": self.received}

    def _send(self) -> None:
        while not self._ends.wait(0.002):
            self.received += self.receives.is_set()
            if self.serves.is_set():
                self.count += 1
                self.batches += 1

    def release(self, packets: int) -> None:
        """Send what has waited, all at once."""
        self.count += packets
        self.batches += 1

    def close(self) -> None:
        self._ends.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def process(directory: Path) -> Iterator[Counting]:
    made = Counting(directory / "i.hypervisor.sock")
    made.serves.set()
    yield made
    made.close()


def of(directory: Path) -> Outage:
    sockets = [directory / f"i.{place}.sock" for place in ("hypervisor", "snic0")]
    return Outage(sockets, [], lambda: True, directory / "migration.1")


def sent(process: Counting, packets: int) -> None:
    goal = process.count + packets
    wait_until(lambda: process.count >= goal)


def pause(process: Counting, seconds: float) -> float:
    """Have it serve nobody; how long that was."""
    process.serves.clear()
    start = time.monotonic()
    time.sleep(seconds)
    process.serves.set()
    return time.monotonic() - start


def test_pauses_count_and_what_is_usual_does_not(directory: Path, process: Counting) -> None:
    outage = of(directory)
    outage.start()
    sent(process, 100)
    before = outage.seconds()
    spent = pause(process, 0.5)
    sent(process, 100)
    assert outage.seconds() - before == pytest.approx(spent, rel=0.2, abs=0.2)
    outage.stop(ended=True)
    assert not (directory / "migration.1").exists()


def test_an_outage_that_an_agent_does_not_live_to_see_is_measured_by_the_next(
    directory: Path, process: Counting
) -> None:
    first = of(directory)
    first.start()
    sent(process, 100)
    process.serves.clear()
    start = time.monotonic()
    time.sleep(0.2)
    first.stop(ended=False)
    time.sleep(0.3)
    second = of(directory)
    second.start()
    process.serves.set()
    spent = time.monotonic() - start
    sent(process, 100)
    assert second.seconds() == pytest.approx(spent, rel=0.2, abs=0.2)
    second.stop(ended=True)


def test_what_was_served_while_no_agent_looked_is_no_outage(directory: Path, process: Counting) -> None:
    first = of(directory)
    first.start()
    sent(process, 200)
    known = first.seconds()
    first.stop(ended=False)
    sent(process, 250)
    second = of(directory)
    second.start()
    sent(process, 50)
    assert second.seconds() == pytest.approx(known, abs=0.2)
    second.stop(ended=True)


def test_what_a_process_served_before_it_was_seen_is_no_outage(directory: Path, process: Counting) -> None:
    process.count = process.batches = 2000  # two seconds' worth, of five in which no agent looked
    known = {"served": time.time() - 5.0, "sent": 1000, "batches": 1000, "serving_s": 1.0}
    (directory / "migration.1").write_text(json.dumps(known))
    outage = of(directory)
    outage.start()
    sent(process, 50)
    assert outage.seconds() == pytest.approx(3.0, abs=1.0)
    outage.stop(ended=True)


def test_without_traffic_there_is_none_to_be_seen(directory: Path, process: Counting) -> None:
    process.serves.clear()
    outage = of(directory)
    outage.start()
    time.sleep(0.2)
    assert outage.seconds() == 0.0
    outage.stop(ended=True)


class Bridge:
    """Answers echo requests of OpenFlow while it forwards."""

    def __init__(self, path: Path) -> None:
        self.forwards = threading.Event()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(struct.pack("!BBHI", 4, 0, 8, 0))
                while len(head := self.rfile.read(8)) == 8:
                    kind, xid = head[1], head[4:]
                    assert outer.forwards.wait(30)
                    if kind == 2:
                        self.wfile.write(struct.pack("!BBH", 4, 3, 8) + xid)

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_what_is_sent_to_a_switch_that_does_not_forward_is_not_served(directory: Path, process: Counting) -> None:
    bridge, in_step = Bridge(directory / "edge.mgmt"), threading.Event()
    bridge.forwards.set()
    sockets = [directory / "i.hypervisor.sock"]
    outage = Outage(sockets, [f"unix:{directory}/edge.mgmt"], in_step.is_set, directory / "migration.1")
    outage.start()
    sent(process, 100)
    before = outage.seconds()
    start = time.monotonic()
    bridge.forwards.clear()
    time.sleep(0.4)
    bridge.forwards.set()
    time.sleep(0.2)  # it answers, and has no rules yet
    in_step.set()
    spent = time.monotonic() - start
    sent(process, 100)
    assert outage.seconds() - before == pytest.approx(spent, rel=0.2, abs=0.2)
    outage.stop(ended=True)
    bridge.close()


def test_a_switch_that_did_not_forward_from_the_start_is_an_outage(directory: Path, process: Counting) -> None:
    bridge = Bridge(directory / "edge.mgmt")
    process.serves.clear()
    outage = Outage(
        [directory / "i.hypervisor.sock"], [f"unix:{directory}/edge.mgmt"], lambda: True, directory / "migration.1"
    )
    start = time.monotonic()
    outage.start()
    time.sleep(0.5)
    spent = time.monotonic() - start
    assert outage.seconds() == pytest.approx(spent, rel=0.2, abs=0.2)
    bridge.forwards.set()
    process.serves.set()
    sent(process, 100)
    assert outage.seconds() == pytest.approx(spent, rel=0.2, abs=0.3)
    outage.stop(ended=True)
    bridge.close()


def test_a_pause_before_anything_was_seen_counts_once_traffic_is_known(directory: Path, process: Counting) -> None:
    process.serves.clear()
    outage = of(directory)
    start = time.monotonic()
    outage.start()
    time.sleep(0.5)
    spent = time.monotonic() - start
    process.serves.set()
    sent(process, 100)
    assert outage.seconds() == pytest.approx(spent, rel=0.2, abs=0.2)
    outage.stop(ended=True)


def test_a_backlog_that_is_released_while_no_agent_looks_was_not_served_in_time(
    directory: Path, process: Counting
) -> None:
    first = of(directory)
    first.start()
    sent(process, 200)
    known = first.seconds()
    first.stop(ended=False)
    spent = pause(process, 1.0)
    process.release(500)
    sent(process, 20)
    second = of(directory)
    second.start()
    sent(process, 100)
    assert second.seconds() - known == pytest.approx(spent, rel=0.2, abs=0.2)
    second.stop(ended=True)


def test_a_look_that_takes_long_is_no_outage(
    directory: Path, process: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage, goes_on, stands = of(directory), threading.Event(), threading.Event()
    goes_on.set()
    look = outage._look_at_switches

    def stopped() -> None:
        if not goes_on.is_set():
            stands.set()
            assert goes_on.wait(30)
        look()

    monkeypatch.setattr(outage, "_look_at_switches", stopped)
    outage.start()
    sent(process, 200)
    before = outage.seconds()
    goes_on.clear()
    assert stands.wait(30)
    sent(process, 400)
    goes_on.set()
    sent(process, 100)
    assert outage.seconds() - before < 0.3
    outage.stop(ended=True)


def test_a_switch_that_answers_late_and_forwards_is_not_away(directory: Path, process: Counting) -> None:
    bridge = Bridge(directory / "edge.mgmt")
    bridge.forwards.set()
    process.receives.set()
    outage = Outage(
        [directory / "i.hypervisor.sock"], [f"unix:{directory}/edge.mgmt"], lambda: False, directory / "migration.1"
    )
    outage.start()
    sent(process, 100)
    before = outage.seconds()
    bridge.forwards.clear()
    time.sleep(0.3)
    bridge.forwards.set()
    sent(process, 100)
    assert outage.seconds() - before < 0.2
    outage.stop(ended=True)
    bridge.close()


def test_a_process_that_hung_all_the_time_is_an_outage_also_without_traffic(directory: Path) -> None:
    outage = of(directory)
    start = time.monotonic()
    outage.start()
    wait_until(lambda: outage.seconds() > 0.0)
    assert outage.seconds() == pytest.approx(time.monotonic() - start, rel=0.2, abs=0.2)
    outage.stop(ended=True)
