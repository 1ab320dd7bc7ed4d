"""Measuring: the output of datapaths becomes a traffic matrix."""

import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfagent.measurement import Coefficient, Rate
from nfagent.monitor import instance_load
from nfagent.monitor.instance_load import Counted, LoadProbe, cpu_time_ns, load, util_plus
from nfagent.monitor.layout import Layout
from nfagent.monitor.learning import Learner, cost
from nfagent.monitor.matrix import Traffic, attribute, port_rates, relative_error
from nfagent.monitor.megaflows import Effect, Megaflow, outcome, parse_dump
from nfagent.monitor.port_counters import PortCounters, parse_show
from nfagent.monitor.subjects import Subject
from nfagent.monitor.switches import RemoteControl, SwitchProbe
from server.config import ServerConfig
from server.errors import ToolError
from server.oneswitchd.answers import VirtualPort
from tests.nfagent.dumps import HUB, Home, Server, flow_line, port_block

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,14}", fullmatch=True).filter(lambda name: name not in ("drop", "in_port"))
COUNTS = st.integers(0, 2**63)
SERVER = ServerConfig.parse(
    """
[oneswitchd]
datapath_id = "0000000000000001"
api = "unix:/none"
[[switch]]
name = "hypervisor"
virt = "unix:/a"
edge = "unix:/b"
[[switch]]
name = "snic0"
virt = "unix:/c"
edge = "unix:/d"
link = { hypervisor = "pcie-snic0", local = "pf0hpf" }
[[switch]]
name = "snic1"
virt = "unix:/e"
edge = "unix:/f"
link = { hypervisor = "pcie-snic1", local = "pf0hpf" }
"""
)

FLOW = st.builds(
    Megaflow,
    key=st.tuples(st.sampled_from(["", "flow-dump from pmd on cpu core: 3"]), st.uuids().map(str)),
    in_port=NAMES,
    recirculation=st.integers(0, 2**32 - 1),
    vid=st.none() | st.integers(0, 4095),
    tunnel=st.none() | st.integers(1, 2**32 - 1),
    packets=COUNTS,
    bytes=COUNTS,
    actions=st.lists(NAMES, min_size=1, max_size=4).map(",".join) | st.just("drop"),
    idle_s=st.integers(0, 20_000).map(lambda ms: ms / 1000),
).map(lambda flow: flow if flow.packets else replace(flow, idle_s=0.0))


@settings(deadline=None)
@given(st.lists(FLOW, max_size=8), st.sampled_from(["", "/0xfff"]))
def test_printed_flows_are_parsed(flows: list[Megaflow], mask: str) -> None:
    lines: list[str] = []
    flows.sort(key=lambda flow: flow.key[0])  # flows of a thread follow its line
    for flow in flows:
        thread, ufid = flow.key
        lines += [thread] if thread and thread not in lines else []
        row = (ufid, flow.in_port, flow.recirculation, flow.vid, flow.packets, flow.bytes, flow.actions)
        lines.append(flow_line(*row, mask=mask, idle_s=flow.idle_s, tunnel=flow.tunnel))
    assert list(parse_dump("\n".join(lines))) == flows


# Actions, each with its effect (outputs, recirculations) on a packet with tags.
@st.composite
def _actions(draw: st.DrawFn, depth: int = 0) -> list[object]:
    leaf = st.one_of(
        st.tuples(st.just("out"), NAMES.map(lambda name: f"x{name}")),
        st.tuples(st.just("push"), st.integers(0, 4095)),
        st.just(("pop",)),
        st.tuples(st.just("recirc"), st.integers(1, 2**32 - 1)),
        st.just(("noise",)),
    )
    inner = st.tuples(st.just("clone"), _actions(depth + 1)) if depth < 2 else leaf
    return draw(st.lists(st.one_of(leaf, inner), min_size=1, max_size=5))


def _print(actions: list[object]) -> str:
    texts = {"pop": "pop_vlan", "noise": "set(ipv4(ttl=63)),hash(l4(0)),ct(commit,zone=1)"}
    found = []
    for what, *rest in actions:  # type: ignore[misc]
        if what in texts:
            found.append(texts[what])
        elif what == "out":
            found.append(rest[0])
        elif what == "push":
            found.append(f"push_vlan(vid={rest[0]},pcp=0)")
        elif what == "recirc":
            found.append(f"recirc({rest[0]:#x})")
        else:
            found.append(f"clone({_print(rest[0])})")
    return ",".join(found)


def _do(actions: list[object], tags: tuple[int, ...], done: tuple[list[object], list[int]]) -> None:
    for what, *rest in actions:  # type: ignore[misc]
        if what == "out":
            done[0].append((rest[0], tags[-1] if tags else None))
        elif what == "push":
            tags = (*tags, rest[0])
        elif what == "pop":
            tags = tags[:-1]
        elif what == "recirc":
            done[1].append(rest[0])
        elif what == "clone":
            _do(rest[0], tags, done)


@settings(deadline=None)
@given(_actions())
def test_actions_have_the_effect_a_packet_sees(actions: list[object]) -> None:
    done: tuple[list[object], list[int]] = ([], [])
    _do(actions, (), done)
    assert outcome(_print(actions)) == Effect(tuple(done[0]), tuple(done[1]))  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(0, 10**6))
def test_garbage_is_skipped(text: str, cut: int) -> None:
    good = flow_line(str(uuid.UUID(int=1)), "vm1", 7, 5, 1, 64, "pop_vlan,clone(push_vlan(vid=4,pcp=0),pf0hpf),vm2")
    cut %= len(good)
    for each in (text, good[:cut] + text + good[cut:], good[:cut], good[cut:], f"{good}\n{text}\n{good}"):
        for flow in parse_dump(each):
            outcome(flow.actions)
        parse_show(each)
    outcome(text)


def test_the_id_beside_a_packet_counts_rather_than_a_tenants_tag() -> None:
    pushed = "push_vlan(vid=7,pcp=0),set(tunnel(tun_id=0x11170,dst=0.0.0.1,ttl=0,flags())),pcie-snic0"
    assert outcome(pushed) == Effect((("pcie-snic0", 70_000),), ())
    both = "set(tunnel(tun_id=0xff7)),pcie-snic0,push_vlan(vid=4087,pcp=0),pcie-snic1,pop_vlan,vm1"
    assert outcome(both) == Effect((("pcie-snic0", 4087), ("pcie-snic1", 4087), ("vm1", 4087)), ())


def test_unknown_actions_are_reported() -> None:
    assert outcome("clone(vm1") is None
    assert outcome("push_vlan(pcp=0),vm1") is None
    assert outcome("clone(" * 5000 + "a" + ")" * 5000) is None


def test_printed_counters_are_parsed() -> None:
    text = port_block(0, "ovs-netdev (tap)", (0, 0), (0, 0)) + port_block(12, "vm1", (8, 784), (9, 10**15))
    text += "  port 3: odd\n    RX packets:? errors:?\n    TX packets:1 errors:0\n    RX bytes:?  TX bytes:5\n"
    assert parse_show(text) == {"ovs-netdev": PortCounters(), "vm1": PortCounters(8, 784, 9, 10**15)}


def ports_of(server: Server) -> list[VirtualPort]:
    return [
        VirtualPort(
            number=home.number,
            name=home.interface,
            switch=home.switch,
            interface=home.interface,
            executes_at=home.executor or home.switch,
            flow_id=home.deliver,
            ingress_id=home.ingress,
        )
        for home in server.homes.values()
    ]


PLACES = st.sampled_from([HUB, "snic0", "snic1"])


@settings(deadline=None)
@given(
    homes=st.lists(st.tuples(PLACES, st.none() | PLACES), min_size=2, max_size=7),
    seed=st.integers(0, 2**32),
)
def test_the_matrix_equals_the_sent_traffic(homes: list[tuple[str, str | None]], seed: int) -> None:
    source = random.Random(seed)
    server = Server(Home(number, switch, executor) for number, (switch, executor) in enumerate(homes, 1))
    layout = Layout.of(SERVER, ports_of(server))
    clock = 0.0
    probes = {name: SwitchProbe(lambda path=path: path, lambda: clock) for name, path in server.paths.items()}
    before = {name: probe.look() for name, probe in probes.items()}
    for second in (1.0, 2.0, 4.0):
        sent: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        # One size per pair: the packet that created a flow is not counted and is assumed to equal the others.
        for _ in range(source.randrange(8)):
            one, other = source.choice(list(server.homes)), source.choice(list(server.homes))
            packets, size = source.randrange(2, 100), 60 + one * 100 + other
            server.send(one, other, packets, size)
            sent[one, other][0] += packets
            sent[one, other][1] += packets * size
        passed, clock = second - clock, second
        after = {name: probe.look() for name, probe in probes.items()}
        traffic = Traffic()
        left: dict[int, Rate] = {}
        for name in probes:
            attribute(traffic, layout, name, before[name], after[name])
            rates = port_rates(before[name], after[name])
            left |= {port: rates[i].tx for i, port in layout.switches[name].local.items() if i in rates}
        before = after
        matrix = traffic.matrix()
        found = {pair: (round(rate.pps * passed), round(rate.mbps * passed * 1e6 / 8)) for pair, rate in matrix.items()}
        assert found == {pair: tuple(row) for pair, row in sent.items()}
        if second > 1.0:  # interfaces count from their first sample
            assert relative_error(matrix, traffic.received(left)) == pytest.approx(0.0, abs=1e-9)


def test_floods_are_counted_behind_a_link() -> None:
    server = Server([Home(1, HUB), Home(2, "snic0"), Home(3, "snic0"), Home(4, "snic1")])
    layout = Layout.of(SERVER, ports_of(server))
    clock = 0.0
    probes = {name: SwitchProbe(lambda path=path: path, lambda: clock) for name, path in server.paths.items()}
    before = {name: probe.look() for name, probe in probes.items()}
    server.paths[HUB].hit("if1", 0, None, "push_vlan(vid=4088,pcp=0),pcie-snic0,pcie-snic1", 10, 100)
    server.paths["snic0"].hit("pf0hpf", 0, 4088, "pop_vlan,if2,if3", 10, 104)
    server.paths["snic0"].hit("if2", 0, None, "if3,push_vlan(vid=4088,pcp=0),pf0hpf", 20, 100)
    clock = 1.0
    traffic = Traffic()
    for name, probe in probes.items():
        attribute(traffic, layout, name, before[name], probe.look())
    packets = {pair: round(rate.pps) for pair, rate in traffic.matrix().items()}
    assert packets == {(1, 2): 10, (1, 3): 10, (1, 4): 10, (2, 3): 20, (2, 1): 20, (2, 4): 20}


def test_a_recreated_flow_counts_from_zero() -> None:
    server = Server([Home(1, HUB), Home(2, HUB)])
    layout = Layout.of(SERVER, ports_of(server))
    clock = 0.0
    probe = SwitchProbe(lambda: server.paths[HUB], lambda: clock)
    server.send(1, 2, 50, 100)
    before = probe.look()
    (flow,) = server.paths[HUB].flows.values()
    flow.packets, flow.octets, clock = 3, 300, 1.0
    traffic = Traffic()
    attribute(traffic, layout, HUB, before, probe.look())
    assert traffic.matrix() == {(1, 2): Rate(400 * 8 / 1e6, 4.0)}


def test_a_returning_flow_counts_from_zero() -> None:
    server = Server([Home(1, HUB), Home(2, HUB)])
    layout = Layout.of(SERVER, ports_of(server))
    clock = 0.0
    probe = SwitchProbe(lambda: server.paths[HUB], lambda: clock)
    server.send(1, 2, 51, 100)
    (flow,) = server.paths[HUB].flows.values()
    for idle_s, counted in ((9.7, 60.0), (3.0, 9.0)):
        flow.packets, flow.octets, flow.idle_s, clock = 50, 5000, idle_s, 0.0
        before = probe.look()
        flow.packets, flow.octets, flow.idle_s, clock = 59, 5900, 0.1, 1.0
        traffic = Traffic()
        attribute(traffic, layout, HUB, before, probe.look())
        assert traffic.matrix()[1, 2].pps == counted
    flow.idle_s, clock = 9.7, 0.0
    before = probe.look()
    flow.idle_s, clock = 10.7, 1.0  # not yet removed
    traffic = Traffic()
    attribute(traffic, layout, HUB, before, probe.look())
    assert traffic.matrix() == {}


def test_the_error_is_derived_from_interface_counters() -> None:
    left = {1: 10.0, 2: 30.0}
    assert relative_error({(2, 1): Rate(10.0, 1.0), (1, 2): Rate(26.0, 1.0)}, left) == pytest.approx(0.1)
    assert relative_error({(2, 1): Rate(1.0, 1.0)}, {1: 0.0}) == 0.0
    assert relative_error({}, left) == pytest.approx(1.0)


def test_a_remote_switch_is_asked_by_a_command() -> None:
    server = Server([Home(1, HUB), Home(2, HUB)])
    server.send(1, 2, 5, 100)
    asked: list[list[str]] = []

    def run(command: list[str]) -> str:
        asked.append(command)
        return server.paths[HUB].call(*command[3:])

    snapshot = SwitchProbe(lambda: RemoteControl(run, "/c.ctl")).look()
    assert [flow.packets for flow in snapshot.flows.values()] == [4]
    assert asked[0] == ["ovs-appctl", "-t", "/c.ctl", "dpctl/dump-flows", "-m", "--names"]


def test_an_unresponsive_switch_is_asked_again() -> None:
    server = Server([Home(1, HUB), Home(2, HUB)])
    made: list[object] = []

    def connect() -> object:
        if len(made) < 1:
            made.append(None)
            raise ToolError("nobody")
        return server.paths[HUB]

    probe = SwitchProbe(connect)  # type: ignore[arg-type]
    with pytest.raises(ToolError):
        probe.look()
    assert probe.look().counters == {}


def test_between_two_looks_no_connection_is_open() -> None:
    path = Server([Home(1, HUB), Home(2, HUB)]).paths[HUB]
    closed: list[bool] = []
    path.close = lambda: closed.append(True)
    SwitchProbe(lambda: path).look()
    assert closed == [True]


# ---- instances


SUBJECT = Subject("i", "l4lb", (1,), 2, HUB, "inc", 0.0, True, None, None)


def test_utilisation_excludes_polling() -> None:
    before = Counted(0.0, cpu_ns=0, busy_ns=0)
    full = Counted(1.0, cpu_ns=2 * 10**9, busy_ns=10**9, batches=10, packets=640, octets=10**6, frames=1280, flows=7)
    found = load(SUBJECT, before, full, None)
    assert (found.utilisation, found.millicores, found.flows) == (0.5, 2000, 7)
    assert found.traffic == Rate(8.0, 1280.0)
    polling = Counted(1.0, cpu_ns=2 * 10**9, busy_ns=0)
    assert load(SUBJECT, before, polling, Rate(1.0, 2.0)).utilisation == 0.0
    assert load(SUBJECT, Counted(0.0, 0), Counted(1.0, 10**9), None).utilisation == 0.5  # opaque: CPU only
    assert load(SUBJECT, Counted(0.0), Counted(1.0), None).millicores == 0
    assert load(SUBJECT, Counted(0.0, 0), full, None).traffic == Rate(0.0, 0.0)  # no earlier answer
    assert util_plus(1.0, 1.0, 10, 10) == pytest.approx((1 + 1 / 64) / 2)


def test_a_silent_instance_is_skipped_and_forgotten_after_its_end(tmp_path: Path) -> None:
    probe, silent = LoadProbe(), replace(SUBJECT, control=str(tmp_path / "nobody"))
    for _ in range(2):
        assert probe.look([silent])["inc"].busy_ns is None
        assert list(probe._mute) == ["inc"]
    assert probe.look([]) == {}
    assert probe._mute == {}


def test_instances_are_asked_concurrently(tmp_path: Path) -> None:
    both = threading.Barrier(2)  # each answers only when both have been asked
    with contextlib.ExitStack() as ends:
        asked = [_instance(ends, tmp_path, name, {"busy_ns": 5}, both) for name in ("one", "two")]
        assert [each.busy_ns for each in LoadProbe().look(asked).values()] == [5, 5]


def test_an_instance_missed_for_lack_of_time_is_asked_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_load, "_THREADS", 1)
    monkeypatch.setattr(instance_load, "_ALL_ANSWER_S", 0.1)
    with contextlib.ExitStack() as ends:
        probe, stuck = LoadProbe(), _instance(ends, tmp_path, "stuck", None)
        good = _instance(ends, tmp_path, "good", {"busy_ns": 5})
        assert [each.busy_ns for each in probe.look([stuck, good]).values()] == [None, None]
        assert list(probe._mute) == ["stuck"]
        assert [each.busy_ns for each in probe.look([stuck, good]).values()] == [None, 5]


def _instance(
    ends: contextlib.ExitStack,
    directory: Path,
    name: str,
    answer: dict[str, int] | None,
    together: threading.Barrier | None = None,
) -> Subject:
    """Serve a control socket that answers, or only accepts connections."""
    path = directory / name
    listener = socket.socket(socket.AF_UNIX)
    ends.callback(listener.close)
    listener.bind(str(path))
    listener.listen()
    if answer is not None:

        def serve() -> None:
            with contextlib.suppress(OSError, threading.BrokenBarrierError):
                while True:
                    with listener.accept()[0] as connection:
                        connection.recv(1000)
                        if together is not None:
                            together.wait(10)
                        connection.sendall(json.dumps({"ok": answer}).encode() + b"\n")

        ends.callback(listener.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=serve, daemon=True).start()
    return replace(SUBJECT, incarnation=name, control=str(path))


def test_an_ended_process_has_no_cpu_time() -> None:
    assert cpu_time_ns(2**22 + 1) is None


def test_cpu_time_includes_awaited_children() -> None:
    spins = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    argv = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, spins]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "\n"
        used = cpu_time_ns(waiting.pid)
        waiting.communicate("\n")
    assert used is not None
    assert used >= 200_000_000


# ---- learning


def test_the_cost_of_a_kind_is_learnt_despite_outliers() -> None:
    learner, source = Learner(), random.Random(1)
    for _ in range(200):
        mbps = source.uniform(10, 1000)
        millicores = round(mbps * 0.5 * source.uniform(0.95, 1.05))
        if source.random() < 0.2:
            millicores *= 10
        learner.take("dpi", "host", mbps, 1000.0, millicores, 0.5)
    (learnt,) = learner.coefficients()
    assert learnt.millicores_per_mbps == pytest.approx(0.5, rel=0.05)
    assert (learnt.samples, learnt.kind) == (200, "dpi")
    assert learnt.deviation < 0.1


def test_nothing_is_learnt_from_little_traffic_or_saturation() -> None:
    learner = Learner()
    learner.take("dpi", "host", 1.0, 1000.0, 500, 0.5)
    learner.take("dpi", "host", 100.0, 5.0, 500, 0.5)
    learner.take("dpi", "host", 100.0, 1000.0, 500, 0.95)
    learner.take("dpi", "host", 100.0, 1000.0, 0, 0.1)
    assert learner.coefficients() == []


def test_earlier_coefficients_count_and_fade() -> None:
    learner = Learner([Coefficient("dpi", "nic", 2.0, 50, 0.1)])
    for _ in range(20):
        learner.take("dpi", "nic", 100.0, 1000.0, 400, 0.5)
    assert learner.coefficients()[0].millicores_per_mbps == 2.0
    for _ in range(60):
        learner.take("dpi", "nic", 100.0, 1000.0, 400, 0.5)
    assert learner.coefficients()[0].millicores_per_mbps == 4.0


def test_unmeasured_classes_are_scaled_from_measured_ones() -> None:
    host = Coefficient("dpi", "host", 0.5, 100, 0.1)
    assert cost([host], "dpi", "host", 2.0) == host
    assert cost([host], "dpi", "nic", 2.0) == Coefficient("dpi", "nic", 1.0, 0, 0.1)
    nic = Coefficient("dpi", "nic", 3.0, 100, 0.1)
    assert cost([nic], "dpi", "host", 2.0).millicores_per_mbps == 1.5
    assert cost([host, nic], "dpi", "nic", 2.0) == nic
    assert [cost([], "x", where, 2.0).millicores_per_mbps for where in ("host", "nic")] == [1.0, 2.0]
    assert (
        cost([Coefficient("dpi", "host", 9.0, 3, 0.1)], "dpi", "host", 2.0).millicores_per_mbps == 1.0
    )  # too few samples
