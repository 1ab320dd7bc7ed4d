"""Measuring and deciding with packets that the switches carry for a network function."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nfagent.capacity import Capacity
from nfagent.decide.demand import Costs, Levels
from nfagent.decide.problem import ProblemMaker
from nfagent.decide.situation import Function, Situation
from nfagent.measurement import Coefficient, Measurement, Passed, Rate
from nfagent.monitor.instance_load import Counted, LoadProbe, OffloadStatus, load
from nfagent.monitor.layout import Layout
from nfagent.monitor.matrix import Traffic, attribute, port_rates, relative_error
from nfagent.monitor.megaflows import outcome
from nfagent.monitor.subjects import Subject
from nfagent.monitor.switches import SwitchProbe
from placement.model import CORES
from tests.nfagent.dumps import HUB, Home, Server
from tests.nfagent.test_monitor import SERVER, ports_of

CLIENT, LB, BACKEND = 1, 2, 3
MAC = "02:00:00:00:00:02"
REWRITE = f"set(eth(src={MAC},dst=02:00:00:00:00:03)),set(ipv4(dst=10.0.0.3,ttl=63))"
SUBJECT = Subject("lb", "l4lb", (LB,), 1, HUB, "inc", 0.0, True, None, None)
STATUS = {
    "state": "connected",
    "why": None,
    "flows": 20,
    "capacity": 65536,
    "targets": 4,
    "packets": 900,
    "bytes": 900_000,
    "share": 0.9,
    "installs": 30,
    "removals": 10,
    "refused": {"full": 3},
}


class Measured:
    """The counts of the switches in a second: the matrix in packets, its error, the interfaces' own rates."""

    def __init__(self, server: Server) -> None:
        self._layout = Layout.of(SERVER, ports_of(server), {MAC: LB})
        self._clock = 0.0
        self._probes = {
            name: SwitchProbe(lambda path=path: path, lambda: self._clock) for name, path in server.paths.items()
        }
        for path in server.paths.values():
            for interface in ("if1", "if2", "if3"):
                path.enter(interface, 0, 0)  # interfaces count from their first sample
        self._before = {name: probe.look() for name, probe in self._probes.items()}

    def after_a_second(self) -> tuple[dict[tuple[int, int], int], float, dict[int, Rate]]:
        self._clock = 1.0
        traffic, left = Traffic(), dict[int, Rate]()
        for name, probe in self._probes.items():
            now = probe.look()
            attribute(traffic, self._layout, name, self._before[name], now)
            rates = port_rates(self._before[name], now)
            left |= {port: rates[i].tx for i, port in self._layout.switches[name].local.items() if i in rates}
        matrix = traffic.matrix()
        packets = {pair: round(rate.pps) for pair, rate in matrix.items()}
        return packets, relative_error(matrix, traffic.received(left)), left


def test_a_carried_packet_is_traffic_to_the_function_and_from_it() -> None:
    server = Server([Home(CLIENT, HUB), Home(LB, HUB), Home(BACKEND, HUB)])
    measured = Measured(server)
    server.send(CLIENT, LB, 10, 1000)  # processed by the function itself
    server.send(LB, BACKEND, 10, 1000)
    server.paths[HUB].hit("if1", 0, None, f"{REWRITE},if3", 990, 1000)
    server.paths[HUB].enter("if1", 990, 1000)
    server.paths[HUB].leave("if3", 990, 1000)
    packets, error, left = measured.after_a_second()
    assert packets == {(CLIENT, LB): 1000, (LB, BACKEND): 1000}
    assert error == pytest.approx(0.0, abs=1e-9)
    assert left[LB].pps == 10


def test_a_packet_carried_on_a_smart_nic_uses_the_link_both_ways() -> None:
    server = Server([Home(CLIENT, HUB), Home(LB, "snic0"), Home(BACKEND, HUB)])
    measured = Measured(server)
    hub, nic = server.paths[HUB], server.paths["snic0"]
    hub.hit("if1", 0, None, "push_vlan(vid=2,pcp=0),pcie-snic0", 100, 1000)
    nic.hit("pf0hpf", 0, 2, f"pop_vlan,{REWRITE},push_vlan(vid=3,pcp=0),pf0hpf", 100, 1004)
    hub.hit("pcie-snic0", 0, 3, "pop_vlan,if3", 100, 1004)
    hub.leave("if3", 100, 1000)
    packets, error, left = measured.after_a_second()
    assert packets == {(CLIENT, LB): 100, (LB, BACKEND): 100}
    assert error == pytest.approx(0.0, abs=1e-9)
    assert left[LB].pps == 0


def test_a_carried_packet_is_the_functions_after_a_recirculation() -> None:
    server = Server([Home(CLIENT, HUB), Home(LB, HUB), Home(BACKEND, HUB)])
    measured = Measured(server)
    path = server.paths[HUB]
    path.hit("if1", 0, None, f"{REWRITE},ct(zone=1),recirc(0x7)", 100, 1000)
    path.hit("if1", 7, None, "ct(commit),recirc(0x8)", 100, 1000)
    path.hit("if1", 8, None, "if3", 100, 1000)
    path.leave("if3", 100, 1000)
    packets, error, _ = measured.after_a_second()
    assert packets == {(CLIENT, LB): 100, (LB, BACKEND): 100}
    assert error == pytest.approx(0.0, abs=1e-9)


def test_a_rule_that_writes_another_address_carries_nothing() -> None:
    for actions in ("set(eth(src=02:00:00:00:00:09)),if3", f"set(eth(src={MAC}/ff:00:00:00:00:00)),if3", "if3"):
        server = Server([Home(CLIENT, HUB), Home(LB, HUB), Home(BACKEND, HUB)])
        measured = Measured(server)
        server.paths[HUB].hit("if1", 0, None, actions, 10, 1000)
        assert measured.after_a_second()[0] == {(CLIENT, BACKEND): 10}


def test_the_last_written_source_address_counts() -> None:
    found = outcome(f"set(eth(src=02:00:00:00:00:09,dst=02:00:00:00:00:08)),{REWRITE},if3")
    assert found is not None
    assert (found.station, found.outputs) == (MAC, (("if3", None),))


# ---- instances


@contextlib.contextmanager
def _serving(path: Path, answers: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Serve a control socket; yield the verbs that it was asked."""
    asked: list[str] = []

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection, connection.makefile("r") as lines:
                    for line in lines:
                        asked.append(json.loads(line)["do"])
                        connection.sendall(json.dumps({"ok": answers[asked[-1]]}).encode() + b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield asked
        listener.shutdown(socket.SHUT_RDWR)


def test_an_instance_that_offloads_is_asked_for_its_status(directory: Path) -> None:
    counters = {"busy_ns": 5, "offload_flows": 20.0, "packets_in": 3, r'packets_dropped{reason="a \"b\""}': 2}
    answers = {"counters": counters, "status": {"kind": "l4lb", "offload": STATUS}}
    with _serving(directory / "lb", answers) as asked:
        counted = LoadProbe().look([replace(SUBJECT, control=str(directory / "lb"))])["inc"]
    assert asked == ["counters", "status"]
    assert counted.offload == OffloadStatus.model_validate(STATUS)
    assert counted.passed == Passed(3, 0, 0, 0, {'a "b"': 2})


def test_other_instances_are_asked_for_their_counters_only(directory: Path) -> None:
    with _serving(directory / "lb", {"counters": {"busy_ns": 5}}) as asked:
        counted = LoadProbe().look([replace(SUBJECT, control=str(directory / "lb"))])["inc"]
    assert (asked, counted.offload) == (["counters"], None)


@pytest.mark.parametrize("status", [{}, {"offload": {"state": "unheard-of"}}])
def test_a_status_without_the_offload_counts_as_none(directory: Path, status: dict[str, Any]) -> None:
    with _serving(directory / "lb", {"counters": {"busy_ns": 5, "offload_flows": 0}, "status": status}):
        counted = LoadProbe().look([replace(SUBJECT, control=str(directory / "lb"))])["inc"]
    assert (counted.busy_ns, counted.offload) == (5, None)


def test_carried_packets_have_a_rate_of_their_own() -> None:
    then = OffloadStatus.model_validate(STATUS)
    now = OffloadStatus.model_validate(STATUS | {"packets": 1900, "bytes": 1_900_000})
    before, after = Counted(0.0, 0, 0, offload=then), Counted(2.0, 0, 0, offload=now)
    found = load(SUBJECT, before, after, Rate(1.0, 2.0))
    assert found.traffic == Rate(1.0, 2.0)
    assert found.offload is not None
    assert found.offload.traffic == Rate(4.0, 500.0)
    assert (found.offload.flows, found.offload.share, found.offload.refused) == (20, 0.9, {"full": 3})
    first = load(SUBJECT, Counted(0.0, 0, 0), after, None).offload
    assert first is not None
    assert first.traffic == Rate(0.0, 0.0)  # a total since the start is not this interval's
    assert load(SUBJECT, before, Counted(2.0, 0, 0), None).offload is None


# ---- deciding


def test_a_placement_predicts_only_the_load_of_a_functions_own_packets() -> None:
    """1,000 Mbps reach the function, of which the switches carry 990 at no cost of its own."""
    function = Function("lb", "lb", "l4lb", 1, 0, HUB, (HUB, "snic0"), 1, None)
    capacity = {
        HUB: Capacity(4000, None, None, 1.0, {"s": 1}),
        "snic0": Capacity(4000, None, 10_000, 2.0, {"s": 1}),
    }
    names = {CLIENT: "port:1", LB: "lb", BACKEND: "port:3"}
    fixed = {"port:1": HUB, "port:3": HUB}
    server = Situation((HUB, "snic0"), capacity, (function,), fixed, names, {}, (), (), frozenset())
    matrix = {(CLIENT, LB): Rate(1000.0, 1e5), (LB, BACKEND): Rate(1000.0, 1e5)}
    costs = Costs()
    costs.learn([Coefficient("l4lb", "host", 0.5, 100, 0.1), Coefficient("l4lb", "nic", 1.5, 100, 0.1)])
    own = load(SUBJECT, Counted(0.0, 0, 0), Counted(1.0, 10_000_000, 10_000_000), Rate(20.0, 2000.0))
    measured = Measurement(0.0, 1.0, matrix, 0.0, {"lb": own}, {}, {})
    problem = ProblemMaker(server, costs, 10).problem(Levels().moment(server, measured))
    (lb,) = problem.nfs
    assert [mode.use[CORES] for mode in lb.modes] == [11, 33]  # of 22 Mbps, the level above 20; not of 2,000
    # All packets would cross the link, carried or not.
    assert {(each.source, each.target): each.mbps >= 1000 for each in problem.demands} == {
        ("port:1", "lb"): True,
        ("lb", "port:3"): True,
    }
