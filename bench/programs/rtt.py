"""Round trips through oneswitchd to two Open vSwitch, compared with those through a bare relay and without either.

A flow-mod and its barrier, for a rule on both switches, for one that matches in_port and is on one, and for such rules
in turns (``turns_...``: two for one switch, two for the other; directly and through relays on a connection to each);
and a frame that enters at a host's interface, goes up as packet-in, down as packet-out, and leaves at another
interface. The client is the same everywhere. The relay (relay.c) is one process that passes bytes, so it costs what any
process between a controller and its switch must cost; for the rule on both switches, it writes to two and waits for
both. Its Open vSwitch have one bridge each; ``two_bridges_relay_...``: each has the two bridges that oneswitchd's have,
and a packet passes both.

``..._added_us``: longer than directly (p50); ``relay_..._added_us``: the same through the relay; ``..._relay_ratio``:
one divided by the other; null where the relay adds less than `LEAST_US`, which says nothing.

``one_core_...``: the same again, half as often, with all processes on one core. Otherwise, the kernel's choice of cores
matters more than the processes' own work: waking a halted core takes longer than passing a message. On one core, a
round trip is the CPU time of all that takes part in it.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from lab.state import LabState
from programs.openflow import OpenFlowClient, add_flow, output_to_controller, packet_out
from programs.relay import Relay

FRAME = bytes.fromhex("020000000002020000000001") + b"\x08\x00" + bytes(46)
IN_PORT, OUT_PORT = 1, 2
# Round trips in a row on one way. After a single one, the process with more code would find less of it in the caches.
BLOCK = 50
LEAST_US = 5.0
DIRECT, PROXY = "direct", "proxy"
# Each to one Open vSwitch, and to two.
RELAYS, TWO_BRIDGES_RELAYS = ("relay", "relay to both"), ("two bridges", "two bridges to both")
WAYS = (DIRECT, *RELAYS, *TWO_BRIDGES_RELAYS, PROXY)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer round trips")
    arguments = parser.parse_args()
    count = 4000 if arguments.quick else 12_000
    figures = measure_all(count)
    with on_one_core():
        figures |= {f"one_core_{name}": each for name, each in measure_all(count // 2).items()}
    print(json.dumps({"round_trips": count, "relay_added_us": figures["relay_in_port_barrier_added_us"], **figures}))


def measure_all(count: int) -> dict[str, float | None]:
    """Start all switches, relays and oneswitchd, and measure ``count`` round trips of each kind on each way."""
    spec = LabSpec.demo(substrate="dummy")
    with ExitStack() as stack:
        one, *relayed = [stack.enter_context(Lab(spec.reference()).start()) for _ in range(3)]
        two, bridged = [stack.enter_context(Lab(spec).start()) for _ in range(2)]
        with Oneswitchd(bridged.server_toml) as first:
            # Its rules in the bridges of the interfaces stay.
            first.wait_up()
        virts = [lab.state.switches[0].virt for lab in relayed]
        bridged_virts = [switch.virt for switch in bridged.state.switches]
        behind = (virts[:1], virts, bridged_virts[:1], bridged_virts)
        relays = [stack.enter_context(Relay(*targets)).target for targets in behind]
        oneswitchd = stack.enter_context(Oneswitchd(two.server_toml))
        oneswitchd.wait_up()
        targets = (one.state.switches[0].virt, *relays, oneswitchd.management)
        clients = {way: stack.enter_context(OpenFlowClient(at)) for way, at in zip(WAYS, targets, strict=True)}
        by_relay = {RELAYS[0]: relayed[0].state, TWO_BRIDGES_RELAYS[0]: bridged.state}
        states = {DIRECT: one.state, **by_relay, PROXY: two.state}
        wires = {way: host_wires(state) for way, state in states.items()}
        for way in states:
            send_up(clients[way])
        figures: dict[str, float | None] = {}
        for name, number, in_port in (("barrier", 1, None), ("in_port_barrier", 0, IN_PORT)):
            ways = (DIRECT, RELAYS[number], TWO_BRIDGES_RELAYS[number], PROXY)
            samples = measure(count, ways, lambda way, in_port=in_port: barrier_us(clients[way], in_port))
            figures |= report(name, "relay", RELAYS[number], samples)
            figures |= report(name, "two_bridges_relay", TWO_BRIDGES_RELAYS[number], samples)
        figures |= report("turns", "relay", RELAYS[0], measure_turns(count, virts, oneswitchd.management))
        packets = measure(count, tuple(states), lambda way: packet_in_us(clients[way], *wires[way]))
        figures |= report("packetin", "relay", RELAYS[0], packets)
        figures |= report("packetin", "two_bridges_relay", TWO_BRIDGES_RELAYS[0], packets)
    return figures


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this thread, and all processes that it starts, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def send_up(client: OpenFlowClient) -> None:
    """Have the packets of `IN_PORT` sent to the client, by the only rule of its switch."""
    client.want_packet_ins()
    client.delete_all()
    client.send(output_to_controller(IN_PORT))
    client.barrier()


def measure(count: int, ways: Sequence[str], round_trip: Callable[[str], float]) -> dict[str, list[float]]:
    """Measure ``count`` round trips on each way, in turns, so that all see the same load."""
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(count // BLOCK):
        # Another order each time: what a way leaves to be done is done in the next one's time.
        for way in ways[:: 1 if turn % 2 else -1]:
            samples[way] += [round_trip(way) for _ in range(BLOCK)]
    return samples


def measure_turns(count: int, virts: Sequence[str], oneswitchd: str) -> dict[str, list[float]]:
    """Measure rules for two switches in turns: two for one of them, which then sleeps while the other gets two."""
    with ExitStack() as stack:
        relays = [stack.enter_context(Relay(virt)).target for virt in virts]
        turns: dict[str, Iterator[tuple[OpenFlowClient, int]]] = {}
        for way, targets in ((DIRECT, virts), (RELAYS[0], relays), (PROXY, [oneswitchd])):
            clients = [stack.enter_context(OpenFlowClient(target)) for target in targets]
            turns[way] = cycle([(clients[n // 2 % len(clients)], 1 + n) for n in range(4)])
        return measure(count, tuple(turns), lambda way: barrier_us(*next(turns[way])))


def barrier_us(client: OpenFlowClient, in_port: int | None) -> float:
    """Measure the microseconds from a flow-mod to its barrier reply."""
    message = add_flow(7, OUT_PORT, in_port)
    start = time.perf_counter()
    client.send(message)
    client.barrier()
    return 1e6 * (time.perf_counter() - start)


def packet_in_us(client: OpenFlowClient, source: socket.socket, target: socket.socket) -> float:
    """Measure the microseconds from a frame's entry to its exit, through the controller."""
    start = time.perf_counter()
    source.sendall(struct.pack(">H", len(FRAME)) + FRAME)
    data = client.receive_packet_in()
    client.send(packet_out(IN_PORT, OUT_PORT, data))
    left = b""
    while len(left) < 2 + len(FRAME):
        left += target.recv(4096)
    return 1e6 * (time.perf_counter() - start)


def host_wires(state: LabState) -> tuple[socket.socket, socket.socket]:
    """Return the wires of the first two hosts."""
    wires = []
    for host in state.hosts[:2]:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire.connect(str(host.interfaces[0].socket))
        wires.append(wire)
    return wires[0], wires[1]


def report(name: str, prefix: str, relay: str, samples: dict[str, list[float]]) -> dict[str, float | None]:
    """Return medians in microseconds, and what oneswitchd adds relative to what ``relay`` does."""
    direct, relayed, proxy = (statistics.median(samples[way]) for way in (DIRECT, relay, PROXY))
    by_relay = relayed - direct
    return {
        f"{name}_direct_us": round(direct, 1),
        f"{name}_proxy_us": round(proxy, 1),
        f"{name}_added_us": round(proxy - direct, 1),
        f"{prefix}_{name}_added_us": round(by_relay, 1),
        f"{name}_{prefix}_ratio": round((proxy - direct) / by_relay, 2) if by_relay >= LEAST_US else None,
    }
