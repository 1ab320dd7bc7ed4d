"""Round trips through oneswitchd to two Open vSwitch, compared with the same client at one Open vSwitch.

A flow-mod and its barrier, for a rule on both switches and for one that matches in_port and is on one; and a frame that
enters at a host's interface, goes up as packet-in, down as packet-out, and leaves at another interface.
"""

import argparse
import json
import socket
import statistics
import struct
import time

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from lab.state import LabState
from programs.openflow import OpenFlowClient, add_flow, output_to_controller, packet_out

FRAME = bytes.fromhex("020000000002020000000001") + b"\x08\x00" + bytes(46)
IN_PORT, OUT_PORT = 1, 2


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer round trips")
    arguments = parser.parse_args()
    count = 500 if arguments.quick else 3000
    spec = LabSpec.demo(substrate="dummy")
    with Lab(spec.reference()).start() as one, Lab(spec).start() as two, Oneswitchd(two.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        direct, proxy = one.state.switches[0].virt, oneswitchd.management
        barriers = alternate(count, lambda c: barrier_us(c, None), direct, proxy)
        in_port_barriers = alternate(count, lambda c: barrier_us(c, IN_PORT), direct, proxy)
        packets = alternate(
            count,
            lambda c, wires: packet_in_us(c, *wires),
            (direct, host_wires(one.state)),
            (proxy, host_wires(two.state)),
        )
    print(json.dumps(report(count, {"barrier": barriers, "in_port_barrier": in_port_barriers, "packetin": packets})))


def alternate(count: int, measure, direct, proxy) -> tuple[list[float], list[float]]:
    """Measure ``count`` round trips at each, in turns, so that both see the same load."""
    samples: tuple[list[float], list[float]] = ([], [])
    targets = [each if isinstance(each, tuple) else (each,) for each in (direct, proxy)]
    with OpenFlowClient(targets[0][0]) as first, OpenFlowClient(targets[1][0]) as second:
        for client in (first, second):
            client.want_packet_ins()
            client.delete_all()
            client.send(output_to_controller(IN_PORT))
            client.barrier()
        for _ in range(count):
            for client, (_, *more), results in zip((first, second), targets, samples, strict=True):
                results.append(measure(client, *more))
    return samples


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


def report(count: int, samples: dict[str, tuple[list[float], list[float]]]) -> dict[str, float]:
    """Return medians in microseconds."""
    figures: dict[str, float] = {"round_trips": count}
    for name, (direct, proxy) in samples.items():
        figures[f"{name}_direct_us"] = round(statistics.median(direct), 1)
        figures[f"{name}_proxy_us"] = round(statistics.median(proxy), 1)
        figures[f"{name}_added_us"] = round(figures[f"{name}_proxy_us"] - figures[f"{name}_direct_us"], 1)
    return figures
