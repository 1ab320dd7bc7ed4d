"""Instances of the load balancer as processes, one of which is killed in the middle of a move.

Runs inside namespaces of its own.

Usage: moving_processes.py DIRECTORY NF COUNT SEED; prints a JSON object per move.

Without a switch, a sender gives its packets to the interface of one instance. Backends are chosen in turn, so a flow
whose state was lost most likely gets another one.
"""

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.listening import Field, listen, overflowed
from nfagent.errors import ControlError
from tests.nfs.instances import MAC, SECRET, Instance, hand_over, last_marker

GATEWAY = bytes.fromhex("040404040404")
FLOWS = 50
INNER = 14 + 20
"""The offset of the inner packet in a tunnel's frame."""
STEPS = ("prepare", "hold", "give", "flip", "drain", "handover")
GIVE = STEPS.index("give")


def config() -> dict[str, Any]:
    """Return the configuration of a VIP with ten backends behind tunnels."""
    backends = [{"name": f"b{number}", "address": f"10.0.0.{number}"} for number in range(10, 20)]
    vip = {"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "ipip"}
    return {
        "interfaces": [{"addresses": ["10.0.0.2/24"], "gateways": ["10.0.0.1"]}],
        "neighbours": [{"address": f"10.0.0.{number}", "mac": GATEWAY.hex(":")} for number in (1, *range(10, 20))],
        "tables": {"connections_ipv4": 4096, "connections_ipv6": 64, "sessions": 64},
        "vips": [vip | {"algorithm": "round-robin", "backends": backends}],
    }


def packet(flow: int, number: int) -> bytes:
    """Build a UDP packet to the VIP that carries its flow and number."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 64, 17, 0, bytes([100, 64, 0, 1]), bytes([192, 0, 2, 1]))
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    udp = struct.pack("!HHHH", 1024 + flow, 53, 16, 0)
    return MAC + GATEWAY + b"\x08\x00" + ip + udp + struct.pack("!II", flow, number) + bytes(10)


class Cable:
    """A veth pair: an instance's interface, and the end that the sender and the observer use."""

    def __init__(self, index: int) -> None:
        self.port = f"n{index}"
        wire = f"w{index}"
        for command in (
            f"link add {wire} type veth peer name {self.port} address {MAC.hex(':')}",
            f"link set {wire} up",
            f"link set {self.port} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # protocol 0: it receives nothing
        self._sender.bind((wire, 0))
        tunnelled = [Field.byte(23, socket.IPPROTO_IPIP), Field.byte(INNER + 9, socket.IPPROTO_UDP)]
        self._observer = listen(tunnelled, [wire])
        self._observer.settimeout(0.05)
        self.seen: list[tuple[int, int, bytes]] = []
        self.refused = 0
        self._unseen = 0
        self._stop = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, frame: bytes) -> None:
        try:
            self._sender.send(frame)
        except OSError:  # a full queue, as with any network card
            self.refused += 1

    def unseen(self) -> int:
        """Return the number of packets that came out while this observer was too slow to see them."""
        self._unseen += overflowed(self._observer)
        return self._unseen

    def _read(self) -> None:
        while not self._stop:
            try:
                frame = self._observer.recv(2048)
            except TimeoutError:
                continue
            flow, number = struct.unpack_from("!II", frame, INNER + 20 + 8)
            self.seen.append((flow, number, frame[30:34]))

    def close(self) -> None:
        self._stop = True
        self._reader.join()
        self._sender.close()
        self._observer.close()
        subprocess.run(["ip", "link", "del", self.port], check=True)


@dataclass
class Traffic:
    """A sender of numbered packets of all flows in turn, to the active cable."""

    active: Cable
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: int = 0
    stop: bool = False

    def run(self) -> None:
        while not self.stop:
            with self.lock:
                for flow in range(FLOWS):
                    self.active.send(packet(flow, self.sent))
                self.sent += 1
            time.sleep(0.002)

    def flip(self, cable: Cable) -> None:
        """Switch to another cable; on return, no packet is in flight to the former one."""
        with self.lock:
            self.active = cable


class Move:
    """A move between two instances, one of which is killed during a step."""

    def __init__(self, nf: str, directory: Path, chance: random.Random, victim: str, step: int, how: str) -> None:
        self.nf, self.directory, self.chance = nf, directory, chance
        self.victim, self.step, self.how = victim, step, how
        self.cables = [Cable(index) for index in range(3)]
        self.old = self._instance("old", 0)
        self.new = self._instance("new", 1, "--hold")
        self.third: Instance | None = None
        self.traffic = Traffic(self.cables[0])
        self.outcome = "done"
        self.prepared: dict[str, Any] = {}
        self.fds: list[int] = []

    def _instance(self, name: str, cable: int, *options: str, fds: tuple[int, ...] = ()) -> Instance:
        command = [self.nf, "run", "l4lb"]
        return Instance(command, self.directory, name, self.cables[cable].port, config(), *options, fds=fds)

    def run(self) -> dict[str, Any]:
        sender = threading.Thread(target=self.traffic.run, daemon=True)
        sender.start()
        try:
            time.sleep(0.03)
            self._steps()
            time.sleep(0.03)
        finally:
            self.traffic.stop = True
            sender.join()
        return self._verdict()

    def _steps(self) -> None:
        for index, step in enumerate(STEPS):
            if index != self.step or self.victim == "none":
                self._do(step)
                continue
            killer = threading.Timer(self.chance.random() * 0.003, getattr(self, self.victim).kill)
            killer.start()
            with contextlib.suppress(ControlError):
                self._do(step)
            killer.join()
            return self._recover()
        return None

    def _do(self, step: str) -> None:
        epoch: dict[str, Any] = {"epoch": 1}
        match step:
            case "prepare":
                self.prepared, self.fds = self.old.ask("prepare", secret=SECRET, **epoch)
            case "hold":
                self._hold(self.new)
            case "give":
                hand_over(self.old, self.new, 1, self.how)
            case "flip":
                self.traffic.flip(self.cables[1])
            case "drain":
                self.cables[0].send(last_marker(1))
                self.old.ask("drain", paths=1, **epoch)
            case "handover":
                self.new.ask("handover", **epoch)

    def _is_given(self) -> bool:
        """Tell, as the agent does, whether the right to send was given; the dead instance cannot tell."""
        survivor = self.old if self.victim == "new" else self.new
        told, _ = survivor.ask("status")
        return told["migration"]["phase"] in ("given", "relayed-to", "running")

    def _hold(self, target: Instance) -> None:
        rings = self.prepared["rings"]
        if self.how == "memfd":
            target.ask("hold", epoch=1, mode="memfd", rings=rings, send=self.fds)
            return
        listen = f"unix:{self.directory}/state.sock"
        Path(listen.removeprefix("unix:")).unlink(missing_ok=True)
        held, _ = target.ask("hold", epoch=1, mode="copy", secret=SECRET, listen=listen, rings=rings)
        self.old.ask("precopy", epoch=1, to=held["address"], fit_bytes=4096)

    def _recover(self) -> None:
        committed = self.step > GIVE or (self.step == GIVE and self._is_given())
        self.outcome = "committed" if committed else "rolled back"
        if self.victim == "new" and not committed:
            self.old.ask("thaw", epoch=1)
        elif self.victim == "old" and not committed:
            self.new.kill()
            self._adopt()
        elif self.victim == "new" and self.how == "copy":
            self.old.kill()  # it has nothing to relay; only its record of the hand-over remains
            self._adopt()
        elif self.victim == "old":
            self.new.ask("commit", epoch=1, given=True)
            self.traffic.flip(self.cables[1])
            self.new.ask("orphaned", epoch=1)
            self.new.ask("handover", epoch=1)
        else:
            self.third = self._instance("third", 2, "--hold")
            self._hold(self.third)
            self.third.ask("commit", epoch=1, repair=True)
            if self.step <= STEPS.index("drain"):
                self.traffic.flip(self.cables[2])
                self.cables[0].send(last_marker(1))
                self.old.ask("drain", epoch=1, paths=1)
            else:
                self.traffic.flip(self.cables[2])
            # The dead instance may have read the ends of the rings; nothing is written into them after `drain`.
            self.third.ask("orphaned", epoch=1)
            self.third.ask("handover", epoch=1)

    def _adopt(self) -> None:
        """Start another instance with the state and the rings of the old one."""
        state, rings = self.fds
        options = ("--arena-fd", str(state), "--rings-fd", str(rings))
        self.third = self._instance("third", 2, *options, fds=(state, rings))
        self.traffic.flip(self.cables[2])

    def _verdict(self) -> dict[str, Any]:
        """Return the observations of the packets, one instance after the other."""
        expected = self.traffic.sent * FLOWS - sum(cable.refused for cable in self.cables)
        end = time.monotonic() + (2 if self._may_lose() else 20)
        while sum(len(each.seen) + each.unseen() for each in self.cables) < expected and time.monotonic() < end:
            time.sleep(0.01)
        unseen = sum(cable.unseen() for cable in self.cables)
        for instance in (self.old, self.new, self.third):
            if instance is not None:
                instance.close()
        for cable in self.cables:
            cable.close()
        for fd in self.fds:
            os.close(fd)
        last: dict[int, int] = {}
        backends: dict[int, set[bytes]] = {}
        wrong = 0
        for cable in self.cables:
            for flow, number, backend in cable.seen:
                wrong += number <= last.get(flow, -1)
                last[flow] = number
                backends.setdefault(flow, set()).add(backend)
        came = sum(len(cable.seen) for cable in self.cables)
        return {
            "victim": self.victim,
            "step": STEPS[self.step],
            "how": self.how,
            "sent": expected,
            "unseen": unseen,
            "missing": expected - came - unseen + wrong,
            "wrong_order_or_double": wrong,
            "other_backend": sum(len(each) > 1 for each in backends.values()),
            "outcome": self.outcome,
            "may_lose": self._may_lose(),
        }

    def _may_lose(self) -> bool:
        """Tell whether packets may be lost: those that a killed process had received are."""
        return self.victim == "old" or (self.victim == "new" and self.step >= GIVE)


def main() -> None:
    directory, nf, count, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(seed)
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    for _ in range(count):
        victim = chance.choice(("old", "new", "new", "none"))
        # Before `prepare` has answered, only the old instance has its state.
        step = chance.randrange(0 if victim == "new" else 1, len(STEPS))
        # In copy mode, state that only the new instance had is lost with it.
        how = "memfd" if victim == "new" and step > GIVE else chance.choice(("memfd", "copy"))
        print(json.dumps(Move(nf, directory, chance, victim, step, how).run()), flush=True)


main()
