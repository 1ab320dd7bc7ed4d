"""A client sends datagrams through a load balancer whose port marks heavy flows, in network namespaces.

test_marks.py runs it inside namespaces of its own.
It prints what arrived where, and what the load balancer counted, as one JSON object.
"""

import json
import select
import socket
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from lab.namespaces import entered, private_run
from tests.nfs.awaiting import await_that
from tests.nfs.l4lb_stage import SERVERS, VIP, Control, balancer, network, told

PORT = 53
FLOWS = 12
#: More than the 54 bytes of frames that can be marked.
PAYLOAD = b"x" * 40


def configuration(names: list[str]) -> dict[str, Any]:
    backends = [{"name": name, "address": SERVERS[name]} for name in names]
    vip = {"name": "dns", "address": VIP, "port": PORT, "protocol": "udp", "algorithm": "round-robin", "mode": "nat"}
    return {
        "interfaces": [{"addresses": ["10.0.0.2/24", "10.1.0.2/24"]}],
        "offload": {"begin": 0, "stop": 0, "heavy_packets_per_s": 1, "idle": "2s", "sampling": 1},
        "vips": [vip | {"backends": backends}],
    }


class Sink:
    """A server that counts the datagrams of each client's port."""

    def __init__(self, name: str) -> None:
        with entered(name):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            self._socket.bind(("0.0.0.0", PORT))
        self.seen: Counter[int] = Counter()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            _, (_, port) = self._socket.recvfrom(2048)
            self.seen[port] += 1


class Clients:
    """Flows of one client, each from its own port."""

    def __init__(self) -> None:
        with entered("client"):
            self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
            for each in self._sockets:
                each.connect((VIP, PORT))
        self.sent = 0

    def send(self) -> None:
        """Send a datagram of each flow."""
        for each in self._sockets:
            each.send(PAYLOAD)
        self.sent += FLOWS


def offload(control: Control) -> dict[str, Any]:
    return control.ask(do="status").get("offload") or {"flows": 0}


def packets(control: Control) -> dict[str, int]:
    return {each["name"]: each["packets"] for each in control.ask(do="l4lb.backends")["backends"]}


def is_resolved(control: Control) -> bool:
    """Tell whether the balancer knows the addresses of its servers; it drops packets for others."""
    return all(each["mac"] for each in control.ask(do="l4lb.backends")["backends"])


def until(clients: Clients, what: Any) -> None:
    """Send until a condition holds."""

    def done() -> bool:
        clients.send()
        select.select([], [], [], 0.005)
        return bool(what())

    await_that(done)


def settled(clients: Clients, sinks: dict[str, Sink]) -> bool:
    return sum(sum(sink.seen.values()) for sink in sinks.values()) >= clients.sent


def flows(sinks: dict[str, Sink]) -> dict[int, list[str]]:
    """Return the servers that each flow has reached."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, sink in sinks.items():
        for port in sink.seen:
            found[port].append(name)
    return found


def main() -> None:
    nf, folder = sys.argv[1], Path(sys.argv[2])
    private_run()
    network()
    sinks = {name: Sink(name) for name in SERVERS}
    both = configuration(list(SERVERS))
    with balancer(nf, folder, both, "--backend", "xdp", "--offload", "xdp") as control, told(control):
        clients = Clients()
        await_that(lambda: is_resolved(control))
        until(clients, lambda: offload(control)["flows"] == FLOWS)
        before = offload(control)["packets"]
        until(clients, lambda: offload(control)["packets"] > before + 10 * FLOWS)
        await_that(lambda: settled(clients, sinks))
        result: dict[str, Any] = {
            "offload": offload(control),
            "sent": clients.sent,
            "arrived": {name: sum(sink.seen.values()) for name, sink in sinks.items()},
            "counted": packets(control),
            "backends_of_flows": sorted({len(names) for names in flows(sinks).values()}),
        }
        control.ask(do="configure", config=configuration(["two"]))
        until(clients, lambda: offload(control)["removals"] > 0 and offload(control)["flows"] == FLOWS)
        for sink in sinks.values():
            sink.seen.clear()
        for _ in range(20):
            clients.send()
        await_that(lambda: sum(sinks["two"].seen.values()) >= 20 * FLOWS)
        result["after_removal"] = {name: sum(sink.seen.values()) for name, sink in sinks.items()}
        await_that(lambda: offload(control)["flows"] == 0)
        result["dropped"] = control.ask(do="status")["packets_dropped"]
        result["refused"] = offload(control)["refused"]
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
