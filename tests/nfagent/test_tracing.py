"""Traces of requests, at a collector of OpenTelemetry: what they hold, and that they cost nothing without one."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from nfagent.control import Control
from nfagent.tracing import Tracing
from server import tracing
from server.tracing import Kind
from tests.nfagent.collector import Collector, Span
from tests.nfagent.test_server import PATH, Deployment
from tests.nfagent.world import World

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ANOTHER = "0af7651916cd43dd8448eb211c80319c"
CALLER = "00f067aa0ba902b7"


def _from_caller(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{CALLER}-{flags}"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # ms
        yield made


def _children(spans: list[Span], parent: str) -> list[Span]:
    return [span for span in spans if span.parent == parent]


def _has(*wanted: tuple[str, str]) -> Callable[[list[Span]], bool]:
    return lambda spans: set(wanted) <= {(span.service, span.name) for span in spans}


@pytest.mark.namespaces
def test_one_request_is_one_trace_across_all_processes(lab_dir: Path, collector: Collector) -> None:
    with (
        Lab(LabSpec.demo().with_slots(1)).start() as lab,
        Oneswitchd(lab.server_toml) as oneswitchd,
        AgentProcess(lab, lab_dir / "agent") as agent,
    ):
        deployment = Deployment(lab, oneswitchd, agent)
        order = {"name": "traced", "kind": "forward", "ports": 1}
        made = agent.client.post(PATH, json=order, headers=_from_caller(TRACE)).json()
        # The agent starts it while others watch for its end, so the last span of the first steps comes at any time.
        spans = collector.wait(
            TRACE,
            _has(("nfagent", "connect"), ("nf", "status"), ("oneswitchd", "POST /v1/ports"), ("nfagent", "reconcile")),
        )
        by_id = {span.identity: span for span in spans}
        assert all(span.parent in by_id or span.parent == CALLER for span in spans)
        (request,) = _children(spans, CALLER)
        assert (request.name, request.attributes["url.path"]) == (f"POST {PATH}", PATH)
        (reconcile,) = (span for span in _children(spans, request.identity) if span.name == "reconcile")
        assert reconcile.attributes["instance"] == made["id"]
        for span in spans:
            if span.service != "nfagent":  # within the request of the agent that it answers
                asked = by_id[span.parent]
                assert (asked.service, asked.name) == ("nfagent", span.name)
                assert asked.start_ns <= span.end_ns
                assert span.start_ns <= asked.end_ns

        deployment.wait(made["id"])
        agent.client.post("/api/v1/migrations", json={"instance": "traced"}, headers=_from_caller(ANOTHER))
        spans = collector.wait(ANOTHER, _has(("nfagent", "done"), ("nfagent", "reconcile")))
        steps = {span.name for span in spans if span.service == "nfagent"}
        assert {
            "prepare",
            "start",
            "rules",
            "hold",
            "freeze",
            "COMMIT",
            "flip",
            "quiesce",
            "drain",
            "handover",
        } <= steps
        told = {(span.service, span.name) for span in spans}
        assert {("nf", "give"), ("nf", "handover"), ("oneswitchd", "POST /v1/ports/{number}/move")} <= told


def test_reads_are_traced_only_for_clients_that_do(directory: Path, collector: Collector) -> None:
    world = World(directory)
    try:
        world.operator.get(PATH)
        world.operator.get(PATH, headers=_from_caller(TRACE, flags="00"))  # not sampled
        world.operator.get(PATH, headers=_from_caller(ANOTHER))
        collector.wait(ANOTHER, _has(("nfagent", f"GET {PATH}")))
        assert collector.traces == {ANOTHER}
    finally:
        world.close()


@pytest.mark.timeout(20)
def test_an_agent_whose_collector_is_away_ends_soon(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")  # discard
    world = World(directory)
    world.create("lost")
    world.close()


def test_without_a_collector_nothing_is_imported() -> None:
    code = "import nfagent.agent, nfagent.tracing, sys; assert nfagent.tracing.Tracing.from_environment({}) is None; "
    code += "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("more", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_environment_can_turn_it_off(more: dict[str, str]) -> None:
    assert Tracing.from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **more}) is None


@dataclass
class _Told:
    """See `server.tracing.Span`; it remembers what it is told."""

    traceparent: str = "00-a-b-01"
    told: list[tuple[str, str, int, int]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, kind: Kind, attributes: dict[str, Any]) -> Iterator["_Told"]:
        yield self

    def tell(self, service: str, name: str, start_ns: int, end_ns: int) -> None:
        self.told.append((service, name, start_ns, end_ns))


@pytest.mark.parametrize(
    "span",
    [None, 1, {}, {"start_ns": "1", "end_ns": 2}, {"start_ns": 2, "end_ns": 1}, {"start_ns": 1, "end_ns": 2**64}],
)
def test_a_function_that_tells_nonsense_is_answered_all_the_same(directory: Path, span: Any) -> None:
    told = _Told()
    with socketserver.ThreadingUnixStreamServer(str(directory / "nf.sock"), _answering({"ok": {}, "span": span})) as nf:
        threading.Thread(target=nf.serve_forever, daemon=True).start()
        with tracing.within(told):
            assert Control(directory / "nf.sock").ask("status") == {}
        nf.shutdown()
    assert told.told == []


def _answering(value: dict[str, Any]) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            assert json.loads(self.rfile.readline())["traceparent"] == "00-a-b-01"
            self.wfile.write(json.dumps(value).encode() + b"\n")

    return Handler
