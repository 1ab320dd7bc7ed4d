"""Heavy flows of a load balancer in the rules of the switch, compared with the load balancer alone, in one run.

`nf_packet_share`: of an offloaded flow's packets, those that the network function received. `cpu_ratio`: CPU time of
all switches and of the network function per packet, with rules to without, where flows send bursts of 8 packets, as
segmentation offload makes them. `p50_ratio`: the same of the packets' latency. `single_...`: the same where each packet
comes alone, so that the fixed cost of a wake-up of Open vSwitch, which rules do not save, is most of its CPU time.
`install_ratio`: rules per second through oneswitchd's offload socket to flow-mods per second sent directly to one Open
vSwitch. `mice_ratio`: new small flows per second beside 8,000 rules for flows of other clients of the VIP, to those
without rules; `same_clients_ratio`: the same where each client also has many of these flows, so that Open vSwitch must
tell them by their ports; `first_...`: the first flows of all clients instead of later ones. `removed_p99_ms`: from the
request to remove a backend until the last packet reaches it.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.balancer import Balancer, balancer_spec
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.flow_stream import FlowStream
from lab.flow_tally import FlowTally
from lab.offload_writer import Writer, writing
from lab.processes import cpu_s
from lab.server import Lab
from lab.spec import LabSpec
from nfagent.control import Control
from programs.openflow import OpenFlowClient
from server.config import ServerConfig

STAY: dict[str, Any] = {"decide": {"enabled": False}}  # nothing moves it
_COMMAND = ["run", "l4lb", "--config", "{config}", "--control", "{control}", "{ports}", "--workers", "{workers}"]
# The same load balancer, which does not use the socket: this program does.
PLAIN = {
    "kind": [
        {
            "name": "l4lb",
            "movable": True,
            "ports": [1, 2],
            "command": [str(Path(sys.executable).parent / "nf"), *_COMMAND],
        }
    ]
}
ALWAYS = {"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "idle": "60s"}
NEVER = ALWAYS | {"begin": 1.0, "stop": 1.0}
FLOWS = 64
LOADS = {"": (8_000, 8), "single_": (4_000, 1)}  # packets per second, and how many of a flow come at once
RULES = 8_000
MICE, QUICK_MICE = 30_000, 8_000
_CLIENTS = 0x6440_0000  # 100.64.0.0, as in lab.flow_frames
_OTHERS = 0x6450_0000  # with the same low bits, which choose tables and masks of rules
_ROUNDS = 4
_ALIVE_S = 0.5
_REMOVED_S, _SETTLED_S = 1.0, 0.5
_STRAGGLERS_S = 0.3
_LIMIT_S = 60.0


@dataclass(frozen=True)
class Flow:
    """Packets of the same flows during a while."""

    sent: int
    lost: int
    to_function: int
    cpu_us: float
    p50_us: float
    reordered: int


class Rig:
    """A load balancer with traffic."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, agent: AgentProcess, flows: int, capacity: int) -> None:
        self.lab, self.oneswitchd = lab, oneswitchd
        self.balancer = Balancer(
            lab, oneswitchd, agent, capacity, "nat", {"offload": NEVER}, backends="nf1", pin="snic0"
        )
        self.balancer.flows = flows
        self.control = Control(Path(agent.runtime) / f"{self.balancer.id}.{self.place()}.sock")

    def place(self) -> str:
        """Return its location."""
        return self.balancer.show()["placement"]["location"]

    def status(self) -> dict[str, Any]:
        """Return the network function's status."""
        return self.control.ask("status")

    def cpu_s(self) -> float:
        """Return the CPU time of all switches and of the network function."""
        switches = [each.processes["ovs-vswitchd"] for each in self.lab.state.switches]
        return sum(map(cpu_s, [*switches, self.balancer.show()["placement"]["pid"]]))

    def await_rules(self, flows: int) -> None:
        """Wait until at least this number of flows have a rule."""
        deadline = time.monotonic() + _LIMIT_S
        while (told := self.status().get("offload", {})).get("flows", 0) < flows:
            if time.monotonic() > deadline:
                raise SystemExit(f"after {_LIMIT_S:g} s {flows} flows were to have a rule: {told}")
            time.sleep(0.05)


@contextmanager
def rig(
    flows: int, capacity: int, settings: dict[str, Any], *, renewed: bool = False
) -> Iterator[tuple[Rig, FlowStream]]:
    """Start everything."""
    with tempfile.TemporaryDirectory(prefix="uo-", dir="/tmp") as path:
        os.environ[ENVIRONMENT] = path
        directory = Path(path)
        with Lab(balancer_spec()).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
            oneswitchd.wait_up()
            with AgentProcess(lab, directory / "agent", settings) as agent:
                made = Rig(lab, oneswitchd, agent, flows, capacity)
                with made.balancer.traffic(directory, renewed=renewed) as stream:
                    yield made, stream


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter: 50 s")
    arguments = parser.parse_args()
    seconds, mice = (3.0, QUICK_MICE) if arguments.quick else (20.0, MICE)
    report: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    report |= heavy(seconds, 2 if arguments.quick else 100)
    report |= installs(2 if arguments.quick else 5) | small(mice, 1 if arguments.quick else 2)
    print(json.dumps(report))


def heavy(seconds: float, removals: int) -> dict[str, Any]:
    """Compare the same heavy flows without rules and with them."""
    with rig(FLOWS, FLOWS, STAY) as (made, stream):
        stream.fill()
        without = loaded(made, stream, seconds)
        made.balancer.reconfigure({"offload": ALWAYS})
        made.await_rules(FLOWS)
        time.sleep(1.0)
        tally = FlowTally()
        tally.add(stream.arrivals())
        promoted = tally.reordered
        carried = loaded(made, stream, seconds)
        ends = sorted(last_ms(made, stream) for _ in range(removals))
        report: dict[str, Any] = {
            "nf_packet_share": round(max(each.to_function / each.sent for each in carried.values()), 4),
            "lost": sum(each.lost for each in [*without.values(), *carried.values()]),
            "reordered": sum(each.reordered for each in [*without.values(), *carried.values()]),
            "reordered_by_promotion": promoted,
            "removed_p99_ms": round(ends[int(len(ends) * 0.99)], 1),
        }
        for name, (before, after) in {load: (without[load], carried[load]) for load in LOADS}.items():
            report |= {
                f"{name}cpu_ratio": round(after.cpu_us / before.cpu_us, 3),
                f"{name}cpu_us": [round(before.cpu_us, 2), round(after.cpu_us, 2)],
                f"{name}p50_ratio": round(after.p50_us / before.p50_us, 3),
                f"{name}p50_us": [round(before.p50_us, 1), round(after.p50_us, 1)],
            }
        return report


def loaded(made: Rig, stream: FlowStream, seconds: float) -> dict[str, Flow]:
    """Measure each of the loads for a while; return the flow by the load's name."""
    flows = {}
    for name, (pps, burst) in LOADS.items():
        stream.set_rate(pps, burst)
        time.sleep(_STRAGGLERS_S)
        flows[name] = during(made, stream, seconds)
        print(f"... {name}{flows[name]}", file=sys.stderr)
    return flows


def last_ms(made: Rig, stream: FlowStream) -> float:
    """Remove a backend; return the milliseconds until the last packet reaches it. Then add it again."""
    (vip,) = made.balancer.config["vips"]
    gone, *kept = vip["backends"]
    address = socket.inet_aton(gone["address"])
    list(stream.arrivals())
    start = time.time_ns()
    made.balancer.reconfigure({"vips": [vip | {"backends": kept}]})
    time.sleep(_REMOVED_S)
    last = max((each.arrived_ns for each in stream.arrivals() if each.backend == address), default=start)
    # It comes last, so that each is removed in its turn.
    made.balancer.reconfigure({"vips": [vip | {"backends": [*kept, gone]}]})
    made.await_rules(FLOWS)
    time.sleep(_SETTLED_S)
    return (last - start) / 1e6


def during(made: Rig, stream: FlowStream, seconds: float) -> Flow:
    """Measure the traffic for a while."""
    list(stream.arrivals())
    first, cpu, function = stream.sent(), made.cpu_s(), made.status()["packets_in"]
    time.sleep(seconds)
    last, cpu, function = stream.sent(), made.cpu_s() - cpu, made.status()["packets_in"] - function
    time.sleep(_STRAGGLERS_S)
    arrivals = [each for each in stream.arrivals() if first <= each.number < last]
    tally = FlowTally()
    tally.add(arrivals)
    p50 = statistics.median(each.delay_ns for each in arrivals) / 1e3
    lost = last - first - tally.received
    return Flow(last - first, lost, function, 1e6 * cpu / (last - first), p50, tally.reordered)


def install(writer: Writer, flows: range, clients: int, first: int = _CLIENTS) -> float:
    """Install a rule for each of these flows; return the seconds until all are confirmed."""
    lines = [
        {"install": [1 << 40 | each, "udp", client(first, each, clients), port(each), "192.0.2.1", 53, 1, "source", 1]}
        for each in flows
    ]
    data = [json.dumps(each) for each in lines]
    start = time.perf_counter()
    writer.send(*data)
    left = len(flows)
    while left > 0:
        event = writer.next("installed", "refused", "error")
        if "installed" not in event:
            raise SystemExit(f"the offload socket answers {event}")
        left -= len(event["installed"])
    return time.perf_counter() - start


def remove(writer: Writer, flows: range) -> None:
    """Remove them, and wait until that is effective."""
    writer.send(*({"remove": 1 << 40 | each} for each in flows))
    left = len(flows)
    while left > 0:
        left -= len(writer.next("effective")["effective"])


@contextmanager
def kept(writer: Writer) -> Iterator[None]:
    """Stay the writer meanwhile."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_ALIVE_S):
            writer.send({"alive": None})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


TARGET = {
    "eth_src": "02:00:00:00:00:01",
    "eth_dst": "02:00:00:00:00:02",
    "source": None,
    "destination": ["10.0.1.10", 53],
    "tunnel": None,
}


def client(first: int, flow: int, clients: int) -> str:
    """Return the address of the client of a flow with a rule."""
    return socket.inet_ntoa(struct.pack(">I", first + flow % clients))


def port(flow: int) -> int:
    """Return its port, which no small flow has."""
    return 10_000 + flow * 7 % 50_000


def installs(repetitions: int) -> dict[str, Any]:
    """Compare the rate of rules through the socket with that of flow-mods sent directly."""
    single, server = LabSpec.star(snics=0, substrate="dummy"), LabSpec.demo(substrate="dummy")
    with Lab(single).start() as one, Lab(server).start() as two, Oneswitchd(two.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        direct = one.state.switches[0].virt
        through, plain = [], []
        for number in range(repetitions):
            flows = range(number * RULES, (number + 1) * RULES)
            with writing(offload_address(two), two.state.ports[0].number) as writer:
                writer.send({"target": [1, TARGET]})
                through.append(RULES / install(writer, flows, 125))
                remove(writer, flows)
            with OpenFlowClient(direct) as switch:
                switch.delete_all()
                switch.barrier()
                messages = flow_mods(flows)
                start = time.perf_counter()
                switch.send(messages)
                switch.barrier()
                plain.append(RULES / (time.perf_counter() - start))
    rates = [round(statistics.median(each)) for each in (plain, through)]
    return {"install_ratio": round(rates[1] / rates[0], 3), "installs_per_s": rates}


def flow_mods(flows: range) -> bytes:
    """Encode a rule for each flow: five fields, and an output."""
    messages = []
    for each in flows:
        address = struct.pack(">I", _CLIENTS + each % 125)
        fields = [(5, b"\x08\x00"), (10, b"\x11"), (11, address), (12, b"\xc0\x00\x02\x01")]
        fields += [(15, struct.pack(">H", port(each))), (16, struct.pack(">H", 53))]
        oxm = b"".join(struct.pack(">HBB", 0x8000, field << 1, len(value)) + value for field, value in fields)
        match = struct.pack(">HH", 1, 4 + len(oxm)) + oxm
        match += bytes(-len(match) % 8)
        apply = struct.pack(">HHI", 4, 24, 0) + struct.pack(">HHIH6x", 0, 16, 1, 0)
        body = struct.pack(">QQBBHHHIIIHH", each, 0, 0, 0, 0, 0, 9, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0, 0)
        length = 8 + len(body) + len(match) + len(apply)
        messages.append(struct.pack(">BBHI", 4, 14, length, each) + body + match + apply)
    return b"".join(messages)


def offload_address(lab: Lab) -> str:
    """Return the address of oneswitchd's offload socket."""
    address = ServerConfig.load(lab.server_toml).oneswitchd.offload
    if address is None:
        raise SystemExit(f"{lab.server_toml} has no offload socket")
    return address


def small(mice: int, repetitions: int) -> dict[str, Any]:
    """Compare the rate of new small flows beside rules for other clients, and for theirs, with that without rules."""
    kinds = {"": None, "mice": _OTHERS, "same_clients": _CLIENTS}
    runs = [{name: new_flows(mice, first) for name, first in kinds.items()} for _ in range(repetitions)]
    best = {name: [max(run[name][part] for run in runs) for part in (0, 1)] for name in kinds}
    report: dict[str, Any] = {"mice_per_s": {name or "none": list(map(round, best[name])) for name in kinds}}
    for name in list(kinds)[1:]:
        first, later = (best[name][part] / best[""][part] for part in (0, 1))
        report |= {f"{name}_ratio": round(later, 3), f"first_{name}_ratio": round(first, 3)}
    return report


def new_flows(mice: int, of_clients: int | None) -> tuple[float, float]:
    """Return the rates of all clients' first flows, and of later ones, beside rules for these clients, if any."""
    clients = mice // 64
    with rig(mice, _ROUNDS * mice, STAY | PLAIN, renewed=True) as (made, stream):
        found = made.oneswitchd.client.port(made.balancer.number)
        with writing(offload_address(made.lab), found.number, owner=found.owner) as writer:
            writer.send({"target": [1, TARGET]})
            if of_clients is not None:
                install(writer, range(RULES), clients, of_clients)
            with kept(writer):
                first = rate_of(stream, 1)
                later = rate_of(stream, _ROUNDS - 1)
    print(f"... {round(first)} and {round(later)} new flows/s", file=sys.stderr)
    return first, later


def rate_of(stream: FlowStream, rounds: int) -> float:
    """Send a packet of each of many new flows, this many times; return the flows per second that arrived."""
    list(stream.arrivals())
    start, first = time.time_ns(), stream.sent()
    last = max(stream.fill() for _ in range(rounds))
    stream.settle(_STRAGGLERS_S, _LIMIT_S)
    arrived = [each.arrived_ns for each in stream.arrivals()]
    if len(arrived) < last - first:
        print(f"... {last - first - len(arrived)} of {last - first} new flows were lost", file=sys.stderr)
    return len(arrived) / (max(arrived) - start) * 1e9


if __name__ == "__main__":
    main()
