"""kill -9 of oneswitchd with many rules, and its restart, while packets keep flowing through the switches."""

import argparse
import json
import signal
import socket
import struct
import threading
import time

from lab.control_plane import Oneswitchd
from lab.errors import LabError
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Place, Wires
from programs.openflow import OpenFlowClient, add_flow

PORTS = 4
SOURCE, TARGET = 1, 3  # on different switches: the packets cross PCIe
_PAUSE_S = 0.002


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one restart instead of five")
    parser.add_argument("--rules", type=int, default=60_000)
    arguments = parser.parse_args()
    with Lab(LabSpec.demo(substrate="dummy")).start() as lab, Wires(lab.state) as wires:
        daemon = Oneswitchd(lab.server_toml)
        try:
            daemon.wait_up()
            install(daemon.management, arguments.rules)
            results: list[Restart] = []
            for _ in range(1 if arguments.quick else 5):
                restart = Restart(daemon, lab, wires)
                restart.run()
                daemon = restart.daemon
                results.append(restart)
        finally:
            daemon.stop()
    print(
        json.dumps(
            {
                "rules": arguments.rules,
                "seconds_to_control": round(max(each.seconds_to_control for each in results), 3),
                "packets_lost": sum(each.packets_lost for each in results),
                "rules_rewritten": max(each.rules_rewritten for each in results),
                "packets": sum(each.packets for each in results),
                "restarts": len(results),
                "note": "from kill -9 to the first barrier reply, the slowest; rewritten: on all bridges",
            }
        )
    )


def install(target: str, rules: int) -> None:
    """Install rules of all ports to the port two further on; a port's packets match its first rule."""
    ports = [1 + number % PORTS for number in range(rules)]
    messages = b"".join(add_flow(number, 1 + (port + 1) % PORTS, port) for number, port in enumerate(ports))
    with OpenFlowClient(target) as client:
        client.send(messages)
        client.barrier()


class Restart:
    """One kill -9 and start under traffic.

    Args:
        daemon: the process to kill; afterwards the attribute is the new one.
        lab: its server.
        wires: the lab's wires.
    """

    def __init__(self, daemon: Oneswitchd, lab: Lab, wires: Wires) -> None:
        self.daemon = daemon
        self.seconds_to_control = 0.0
        self.packets = 0
        self.packets_lost = 0
        self.rules_rewritten = 0
        self._lab = lab
        self._wires = wires

    def run(self) -> None:
        """Run it, with packets before, during and after oneswitchd's absence."""
        ports = {port.number: (port.switch, port.interface) for port in self.daemon.client.ports()}
        traffic = Traffic(self._wires, ports[SOURCE])
        # Not the other way round: a Daemon dies with the thread that started it.
        traffic.start()
        try:
            start = time.perf_counter()
            self.daemon.stop(signal.SIGKILL)
            self.daemon = Oneswitchd(self._lab.server_toml)
            with connect(self.daemon) as client:
                client.barrier()
                self.seconds_to_control = time.perf_counter() - start
            status = self.daemon.wait_up()
        finally:
            sent = traffic.stop()
        arrived = self._wires.settle().get(ports[TARGET], [])
        self.packets = len(sent)
        self.packets_lost = len(set(sent) - set(arrived))
        self.rules_rewritten = sum(switch.repairs for switch in status.switches)


class Traffic(threading.Thread):
    """Packets from one port until stopped, and a few more.

    Args:
        wires: not used by others meanwhile.
        source: their ingress port.
    """

    def __init__(self, wires: Wires, source: Place) -> None:
        super().__init__()
        self._wires = wires
        self._source = source
        self._sent: list[bytes] = []
        self._ending = threading.Event()
        self._error: LabError | None = None

    def run(self) -> None:
        """Send."""
        try:
            last = None
            while last is None or len(self._sent) < last:
                self._send()
                if last is None and self._ending.wait(_PAUSE_S):
                    last = len(self._sent) + 50
        except LabError as error:  # reported by stop()
            self._error = error

    def stop(self) -> list[bytes]:
        """Stop, and return the sent packets."""
        self._ending.set()
        self.join()
        if self._error:
            raise self._error
        return self._sent

    def _send(self) -> None:
        frame = packet(len(self._sent))
        self._wires.inject(self._source, frame)
        self._sent.append(frame)


def connect(daemon: Oneswitchd) -> OpenFlowClient:
    """Connect as a controller does: retry until it is accepted."""
    deadline = time.monotonic() + 30.0
    while True:
        daemon.require_running()
        try:
            return OpenFlowClient(daemon.management)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def packet(number: int) -> bytes:
    """Build an IPv4 packet to 10.0.0.0 with a number in it."""
    ethernet = bytes.fromhex("0200000000030200000000010800")
    payload = struct.pack("!HHHHI18x", 1, 1, 30, 0, number)
    source, target = socket.inet_aton("10.1.0.1"), socket.inet_aton("10.0.0.0")
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, 17, 0, source, target)
    return ethernet + header + payload
