"""The examples of UNO's chains: they ask nfagent for the ports, and lead packets from hop to hop, both ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from tests.examples.chained import Server, serving
from tests.examples.switches import wait_for

# Ports 1 to 4 are on the hypervisor, 5 to 8 on the smart NIC.
SITE_A, SITE_B, OUT, IN, NEAR, FAR = 1, 5, 2, 6, 3, 7
VIP, LAST = "10.0.0.100", 8


class Agent:
    """Stands in for nfagent."""

    def __init__(self) -> None:
        self.chain: dict[str, Any] | None = None
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = answer(self.path)
                self.send_response(404 if found is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, path: str) -> dict[str, Any] | None:
        return self.chain if path == "/api/v1/chains/web" else None

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def function(name: str, *numbers: int) -> dict[str, Any]:
    ports = [{"number": number, "name": f"{'vm' if number < 5 else 'nf'}{number}"} for number in numbers]
    return {"port": None, "name": name, "ports": ports}


def end(number: int) -> dict[str, Any]:
    return {"port": number, "name": None, "ports": []}


def chain(*hops: dict[str, Any]) -> dict[str, Any]:
    return {"status": "active", "hops": list(hops)}


@contextmanager
def led(directory: Path, application: str, more: str) -> Iterator[tuple[Server, Agent]]:
    agent = Agent()
    try:
        settings = f"agent = {agent.address}\nchain = web\n{more}"
        with serving(directory, application, settings, 4) as server:
            yield server, agent
    finally:
        agent.close()


@pytest.fixture
def sdwan(tmp_path: Path) -> Iterator[tuple[Server, Agent]]:
    with led(tmp_path, "sdwan_chain.py", "turned = gateway") as made:
        yield made


def frame(mac: str = "02:00:00:00:00:01") -> Packet:
    return Ether(src=mac, dst="02:00:00:00:00:99") / IP(src="10.0.0.1", dst=VIP) / UDP(sport=1, dport=2)


def test_the_sdwan_chain_is_wired_hop_by_hop_and_nowhere_else(sdwan: tuple[Server, Agent]) -> None:
    server, agent = sdwan
    assert server.send(SITE_A, frame()) == set()
    agent.chain = chain(end(SITE_A), function("firewall", OUT, IN), function("gateway", FAR, NEAR), end(SITE_B))
    wait_for("the wires", lambda: server.flows().count("in_port=") == 6)
    server.wires.purge()
    for wire in ((SITE_A, OUT), (IN, NEAR), (FAR, SITE_B)):
        for source, target in (wire, wire[::-1]):
            assert server.send(source, frame()) == {target}
    assert server.send(LAST, frame()) == set()
    place = server.oneswitchd.client.find_port(f"nf{IN}")
    server.oneswitchd.client.delete_port(IN)
    wait_for("the wire to end", lambda: server.flows().count("in_port=") == 4)
    server.wires.purge()
    assert server.send(NEAR, frame()) == set()
    server.oneswitchd.client.add_port(IN, f"nf{IN}", place.switch, place.interface)
    wait_for("the wire", lambda: server.flows().count("in_port=") == 6)
    agent.chain["status"] = "deleting"
    wait_for("no wires", lambda: "in_port=" not in server.flows())
    server.wires.purge()
    assert server.send(SITE_A, frame()) == set()


def test_the_datacentre_chain_leads_a_vip_through_the_functions_once_they_are_there(tmp_path: Path) -> None:
    with led(tmp_path, "datacentre_chain.py", f"vips = {VIP}") as (server, agent):
        wait_for("the VIP's rule", lambda: f"nw_dst={VIP}" in server.flows())
        assert server.send(SITE_A, frame()) == set(), "nothing reaches the VIP without its chain"
        functions = function("firewall", OUT, IN), function("assets", NEAR, FAR), function("lb", LAST)
        agent.chain = chain(end(SITE_A), *functions)
        wait_for("the chain", lambda: f"arp_spa={VIP}" in server.flows())
        server.wires.purge()
        for source, target in ((SITE_A, OUT), (IN, NEAR), (FAR, LAST)):
            assert server.send(source, frame()) == {target}
        asks = Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2")
        assert server.send(SITE_A, asks).isdisjoint({OUT, IN, NEAR, FAR}), "floods do not enter functions in line"
        agent.chain = None
        wait_for("no chain", lambda: f"arp_spa={VIP}" not in server.flows())
        server.wires.purge()
        assert server.send(SITE_A, frame()) == set()
