"""The smallest network function between two hosts, on each back end: runtime and ports."""

import itertools
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.nfs.wire import Nf, Wire, nf_program

pytestmark = pytest.mark.namespaces

BACKENDS = {"xdp": "AF_XDP", "packet": "AF_PACKET"}
"""The back ends by their names on the command line."""

# A user namespace is not enough for AF_XDP: the kernel loads no programs there.
backends = pytest.mark.parametrize("backend", [pytest.param("xdp", marks=pytest.mark.root), "packet"])


@pytest.mark.parametrize("workers", [1, 2])
@backends
def test_hosts_communicate_through_it(directory: Path, backend: str, workers: int) -> None:
    with Wire(directory, queues=workers) as wire:
        if backend == "packet":
            wire.run("a", "ethtool", "-K", "a0", "tso", "off", "gso", "off")
        with wire.nf(f"--backend={backend}", f"--workers={workers}") as nf:
            wire.ping()
            wire.ping(size=1472)
            # The hosts leave checksums to a network card that does not exist, since their offloads are on.
            sink = wire.peer("b", "tcp_sink")
            sent = wire.peer("a", "tcp_source", "10.9.0.2", "8").result()
            assert sink.result() == sent
            status = nf.ask("status")
            assert [port["backend"] for port in status["ports"]] == [BACKENDS[backend]] * 2
            assert [port["name"] for port in status["ports"]] == ["n0", "n1"]
            assert status["ports"][0]["receive_checksums_completed"] > 0
            _await(lambda: _all_left(nf))
            assert status["packets_dropped"] == {}
            assert nf.ask("counters")["flows"] >= 2


@backends
def test_flows_are_spread_over_workers_and_keep_their_order(directory: Path, backend: str) -> None:
    with Wire(directory, queues=2) as wire, wire.nf(f"--backend={backend}", "--workers=2") as nf:
        wire.ping(count=1)
        # Enough flows that one worker hardly ever gets all: ports, and thereby queues, are random.
        sink = wire.peer("b", "udp_sink", "16", "150")
        wire.peer("a", "udp_source", "10.9.0.2", "16", "150").result()
        came = sink.result()
        counters = nf.ask("counters")
        assert all(counters[f'packets_processed{{worker="{worker}"}}'] > 100 for worker in (0, 1)), counters
        assert len(came) == 16
        for numbers in came:
            assert numbers == sorted(set(numbers)), "reordered or doubled"
            assert len(numbers) == 150


@pytest.mark.root
def test_queues_added_after_the_start_are_served(directory: Path) -> None:
    """AF_XDP is bound to the queues of the start; frames of others are forwarded, and status reports them."""
    ends = (("nf", "n0"), ("nf", "n1"), ("a", "a0"), ("b", "b0"))
    with Wire(directory, queues=2) as wire:

        def set_queues(count: str) -> None:
            # An interface never has more transmit queues than its peer has receive queues.
            for where, name in ends if count == "2" else reversed(ends):
                wire.run(where, "ethtool", "-L", name, "rx", count, "tx", count)

        set_queues("1")
        with wire.nf("--backend=xdp") as nf:
            wire.ping(count=1)
            assert nf.ask("status")["ports"][0]["receive_unbound_queues"] == 0
            set_queues("2")
            sink = wire.peer("b", "udp_sink", "16", "50")
            wire.peer("a", "udp_source", "10.9.0.2", "16", "50").result()
            assert sink.result() == [list(range(50))] * 16
            wire.run("a", "ethtool", "-K", "a0", "tso", "off", "gso", "off")
            for _ in range(4):
                stream = wire.peer("b", "tcp_sink")
                sent = wire.peer("a", "tcp_source", "10.9.0.2", "4").result()
                assert stream.result() == sent
            port = nf.ask("status")["ports"][0]
            assert port["receive_unbound_queues"] > 0
            assert any("restart with as many --workers" in note for note in port["notes"]), port["notes"]
            assert port["receive_unsegmented"] == 0


@backends
def test_vlan_tags_are_preserved(directory: Path, backend: str) -> None:
    with Wire(directory) as wire, wire.nf(f"--backend={backend}"):
        sink = wire.peer("b", "tagged_sink", "b0")
        sent = wire.peer("a", "tagged_source", "a0").result()
        assert sink.result() == sent


@backends
def test_an_idle_instance_sleeps(directory: Path, backend: str) -> None:
    with Wire(directory) as wire, wire.nf(f"--backend={backend}") as nf:
        wire.ping()
        _settle(nf)
        _await(lambda: _share_of_a_core(nf, 2.0) < 0.01)


def _share_of_a_core(nf: Nf, seconds: float) -> float:
    """Return the CPU time used while no traffic is sent; hosts send a frame now and then."""
    before = nf.cpu_ns()
    time.sleep(seconds)
    return (nf.cpu_ns() - before) / (seconds * 1e9)


def _all_left(nf: Nf) -> bool:
    """Tell whether all received packets have left."""
    status = nf.ask("status")
    return status["packets_in"] == status["packets_out"]


def _settle(nf: Nf) -> None:
    """Wait until the hosts have sent the frames of their start."""
    for _ in range(50):
        before = nf.ask("status")["packets_in"]
        time.sleep(0.2)
        if nf.ask("status")["packets_in"] == before:
            return


@backends
def test_a_stopped_instance_leaves_nothing_behind(directory: Path, backend: str) -> None:
    with Wire(directory) as wire:
        with wire.nf(f"--backend={backend}") as nf:
            assert ("xdp" in wire.run("nf", "ip", "link", "show", "n0")) == (backend == "xdp")
            assert nf.terminate() == 0
            assert not nf.socket.exists()
        with wire.nf(f"--backend={backend}") as nf:
            assert nf.ask("stop") == {}
            assert nf.process.wait(timeout=30) == 0
        assert "xdp" not in wire.run("nf", "ip", "link", "show", "n0")


@pytest.mark.root
def test_a_killed_instance_can_restart_at_once(directory: Path) -> None:
    with Wire(directory) as wire:
        for _ in range(2):
            with wire.nf("--backend=xdp") as nf:
                wire.ping(count=1)
                nf.kill()


def test_odd_frames_are_counted_and_others_forwarded(directory: Path) -> None:
    with Wire(directory, mtu=9500) as wire, wire.nf() as nf:
        status = nf.ask("status")
        # AF_XDP accepts no frames of this length, and reports it.
        assert status["ports"][0]["backend"] == "AF_PACKET"
        assert "AF_XDP was not possible: port n0: its MTU is 9500" in status["ports"][0]["how"]
        assert "AF_XDP was not possible" in nf.said()
        wire.ping(count=1)
        wire.ping(count=1, size=8972)
        _settle(nf)
        before = nf.ask("status")
        wire.peer("a", "frames", "a0", "14", "15", "60", "1514", "9472", "9473", "9514").result()
        wire.ping(count=1)
        after = nf.ask("status")
        assert after["ports"][0]["receive_too_long"] == 2
        assert after["packets_in"] - before["packets_in"] >= 5


def test_segments_in_one_frame_are_dropped_with_a_hint(directory: Path) -> None:
    with Wire(directory) as wire, wire.nf("--backend=packet") as nf:
        sink = wire.peer("b", "tcp_sink")
        source = wire.peer("a", "tcp_source", "10.9.0.2", "1")
        # TCP succeeds slowly in the end: it falls back to single segments.
        _await(lambda: nf.ask("status")["ports"][0]["receive_unsegmented"] > 0)
        notes = nf.ask("status")["ports"][0]["notes"]
        assert any("ethtool -K INTERFACE tso off gso off" in note for note in notes)
        wire.run("a", "ethtool", "-K", "a0", "tso", "off", "gso", "off")
        assert source.result() == sink.result()


def _await(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_refusals_name_the_remedy(directory: Path) -> None:
    with Wire(directory) as wire:
        config = directory / "empty.toml"
        config.write_text("")

        def refused(*options: str, config: Path = config) -> str:
            command = [nf_program(), "run", "forward", f"--config={config}", *options]
            return wire.run("nf", "sh", "-c", f"{' '.join(command)}; test $? = 1")

        said = refused("--port=n0", "--backend=xdp", "--workers=2")
        assert "port n0: it has 1 receive queue(s) for 2 workers" in said
        assert "ethtool -L n0" in said
        assert "port nosuch: cannot find it" in refused("--port=nosuch")
        wire.run("nf", "ip", "link", "set", "n1", "down")
        assert "port n1: it is down: ip link set n1 up" in refused("--port=n0", "--port=n1")
        wrong = directory / "wrong.toml"
        wrong.write_text("flowz = 1\n")
        assert "unknown field `flowz`" in refused("--port=n0", config=wrong)
        assert "--arena-fd 77: cannot be opened" in refused("--port=n0", "--arena-fd=77")


def test_a_wrong_configuration_is_refused_before_ports_are_opened(directory: Path) -> None:
    path = directory / "wrong.toml"
    path.write_text("interfaces = [{ addresses = [] }]\nlimits = { head = 1 }\n")
    command = [nf_program(), "run", "l7lb", f"--config={path}", "--port=nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "limits.head: is 1; expected 400 to 65536 bytes" in done.stderr
    assert "nosuch" not in done.stderr


def test_af_packet_allows_more_workers_than_queues(directory: Path) -> None:
    with Wire(directory) as wire, wire.nf("--workers=2") as nf:
        how = nf.ask("status")["ports"][0]["how"]
        assert "2 socket(s); AF_XDP was not possible" in how
        wire.ping()


@backends
def test_a_second_instance_on_an_interface_is_refused(directory: Path, backend: str) -> None:
    """The second instance is refused with the name of the first; one that waits for its state is accepted."""
    with Wire(directory) as wire, wire.nf(f"--backend={backend}") as nf:
        config = directory / "other.toml"
        config.write_text("")
        second = f"{nf_program()} run forward --config={config} --port=n1 --backend={backend}"
        said = wire.run("nf", "sh", "-c", f"{second}; test $? = 1")
        assert "port n1: another instance runs on it (pid " in said
        assert "forward, nf.sock" in said
        assert "--port n0: given twice" in wire.run("nf", "sh", "-c", f"{second} --port=n0 --port=n0; test $? = 1")
        wire.ping(count=1)
        nf.kill()
        with wire.nf(f"--backend={backend}"):
            wire.ping(count=1)


@backends
def test_a_removed_interface_is_reported(directory: Path, backend: str) -> None:
    with Wire(directory) as wire, wire.nf(f"--backend={backend}") as nf:

        def states() -> list[str]:
            return [port["state"] for port in nf.ask("status")["ports"]]

        wire.ping(count=1)
        wire.run("nf", "ip", "link", "set", "n1", "down")
        assert states() == ["up", "down"]
        wire.run("nf", "ip", "link", "set", "n1", "up")
        wire.run("a", "ip", "link", "set", "a0", "down")
        assert states() == ["no carrier", "up"]
        wire.run("a", "ip", "link", "set", "a0", "up")
        assert states() == ["up", "up"]
        wire.ping(count=1)
        wire.run("nf", "ip", "link", "del", "n0")
        assert states() == ["gone", "up"]
        _await(lambda: _share_of_a_core(nf, 0.5) < 0.05)


def test_a_held_instance_keeps_arriving_frames(directory: Path) -> None:
    with Wire(directory) as wire, wire.nf("--hold") as nf:
        assert nf.ask("status")["mode"] == "hold"
        assert "0 received" in wire.run("a", "ping", "-c", "2", "-i", "0.1", "-w", "1", "10.9.0.2", check=False)
        counters = nf.ask("counters")
        assert counters["packets_kept_or_relayed"] > 0
        assert counters["packets_out"] == 0


def test_the_functions_are_listed_and_replay_a_capture(directory: Path) -> None:
    program = nf_program()
    listed = subprocess.run([program, "list", "--format", "json"], capture_output=True, text=True, check=True)
    kinds = {each["kind"]: each for each in json.loads(listed.stdout)}
    assert {"forward", "l4lb"} <= set(kinds)
    assert kinds["forward"]["schema"] == 1
    ports = {name: kind["offloaded_ports"] for name, kind in kinds.items() if kind["offloaded_ports"]}
    assert ports == {"l4lb": 1, "firewall": 2}
    assert kinds["forward"]["files"] == []
    assert {"log.path", "listeners[].tls.key", "listeners[].tls.certificates[].signer"} <= set(kinds["l7lb"]["files"])
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.utils import rdpcap, wrpcap

    packets = [
        Ether(src=f"02:00:00:00:00:{index % 3:02x}", dst="02:00:00:00:00:ff")
        / IP(dst="10.0.0.1")
        / UDP()
        / bytes(index)
        for index in range(50)
    ]
    for packet, seconds in zip(packets, itertools.count(1_700_000_000), strict=False):
        packet.time = seconds
    wrpcap(str(directory / "in.pcap"), packets)
    (directory / "c.toml").write_text("idle_s = 2\n")
    results = []
    for name in ("one", "two"):
        output = directory / f"{name}.pcap"
        command = [program, "replay", "forward", directory / "in.pcap", output, f"--config={directory}/c.toml"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append((done.stdout, output.read_bytes()))
    assert results[0] == results[1]
    summary = json.loads(results[0][0])
    assert (summary["packets_in"], summary["packets_out"]) == (50, 50)
    # With a packet a second and a lifetime of 2 s, two of the three pairs of addresses are known at the end.
    assert summary["counters"]["flows"] == 2
    assert [bytes(packet) for packet in rdpcap(str(directory / "one.pcap"))] == [bytes(packet) for packet in packets]
