"""A firewall that moves between two processes while a capture is replayed, and whose inspector is killed.

Runs inside namespaces of its own.

Usage: moving_firewalls.py DIRECTORY NF NF_DPI SEED MOVES CAPTURE...; MOVES of each capture; prints a JSON object per
capture.

`nf replay` says which packets of the capture leave, and which application each flow has without moves; ndpiReader says
the latter, too. All are compared with what the moving firewall does. At most some packets are on their way at a time.
nDPI recognises some flows by others to the same address, so the order in which it gets packets of different flows
counts: if applications differ, the capture is replayed with one packet on its way at a time, as by `nf replay`.
Where the fate of a packet depends on whether earlier ones of its flow still wait (it is a fragment, or a
retransmission), it is sent after these have left.
"""

import contextlib
import csv
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.nfs.instances import MAC, SECRET, Instance, hand_over, last_marker

LONGEST = 9014
PACKETS = 2000
"""The most packets of a capture."""
INSPECTED = 64
MOST_BYTES = 66 << 10
"""The first packets of a flow that the firewall stores, as the number above. Until it has decided, it drops others."""
WINDOW, FLOW_WINDOW = 64, 8
LIMIT_S = 60
_OUTGOING = 4  # PACKET_OUTGOING
_ALL = 3  # ETH_P_ALL
_SO_RCVBUFFORCE = 33
_HEADER, _RECORD = struct.Struct("<IHHiIII"), struct.Struct("<IIII")
_TAGS = (b"\x81\x00", b"\x88\xa8")
_FOREVER = {f"{name}_s": 1_000_000 for name in ("unanswered", "established", "closing", "datagrams")}

Flow = tuple[bytes, ...]


def config(helper: str) -> dict[str, Any]:
    """Return rules that let everything pass, as soon as its application is known."""
    return {
        "default": "allow",
        "midstream": "evaluate",
        "other_frames": "allow",
        "flows": 20_000,
        "unanswered": 20_000,
        "timeouts": _FOREVER,
        "inspection": {"packets": INSPECTED, "wait_ms": 10_000, "memory_mib": 16, "helper": helper},
        "rules": [
            {"name": "unknown", "applications": ["Unknown"], "action": "allow", "undecided": "drop", "log": True},
            {"name": "known", "action": "allow", "log": True},
        ],
    }


def frames(capture: Path) -> list[bytes]:
    """Return the frames of an Ethernet capture in tcpdump's format."""
    data = capture.read_bytes()
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[6] & 0xFFFF != 1:
        return []
    found, at = [], _HEADER.size
    while at + _RECORD.size <= len(data):
        length = _RECORD.unpack_from(data, at)[2]
        found.append(data[at + _RECORD.size : at + _RECORD.size + length])
        at += _RECORD.size + length
    return found


def cut(capture: Path, into: Path) -> list[bytes]:
    """Write the first packets that an interface takes as they are; return them."""
    data = capture.read_bytes()
    kept = bytearray(data[: _HEADER.size])
    found: list[bytes] = []
    at = _HEADER.size
    for frame in frames(capture):
        original = _RECORD.unpack_from(data, at)[3]
        fits = 14 < len(frame) <= LONGEST and original == len(frame) and frame[12:14] not in _TAGS
        if fits and len(found) < PACKETS:
            # An instance with one port takes what is addressed to it.
            found.append(MAC + frame[6:])
            kept += data[at : at + _RECORD.size] + found[-1]
        at += _RECORD.size + len(frame)
    into.write_bytes(kept)
    return found


@dataclass(frozen=True)
class Packet:
    """A frame's flow, the same for both directions, and its direction.

    Attributes:
        is_fragment: it has no ports, or others of its packet have none.
        next: of TCP: the numbers of its first byte, and of the first one after it.
        has_payload: the answer to it may decide the flow.
    """

    flow: Flow
    direction: Flow
    is_fragment: bool = False
    next: tuple[int, int] | None = None
    has_payload: bool = True


def parse(frame: bytes) -> Packet:
    """Find the flow of a frame."""
    kind, ip = frame[12:14], frame[14:]
    if kind == b"\x08\x00" and len(ip) >= 20 and ip[0] >> 4 == 4:
        header, end = (ip[0] & 15) * 4, int.from_bytes(ip[2:4])
        protocol, ends = ip[9], [ip[12:16], ip[16:20]]
        is_fragment = int.from_bytes(ip[6:8]) & 0x3FFF != 0
    elif kind == b"\x86\xdd" and len(ip) >= 40:
        header, end = 40, 40 + int.from_bytes(ip[4:6])
        protocol, ends = ip[6], [ip[8:24], ip[24:40]]
        is_fragment = protocol not in (6, 17, 58)
    else:
        return Packet((kind,), (kind,))
    transport = ip[header:end]
    if protocol in (6, 17) and not is_fragment:
        ends = [ends[0] + transport[:2], ends[1] + transport[2:4]]
    about = () if is_fragment else _message(protocol, transport)
    flow = (bytes([protocol]), *sorted(ends), *about)
    numbers, has_payload = None, True
    if protocol == 6 and not is_fragment and len(transport) >= 20:
        first = int.from_bytes(transport[4:8])
        length = max(len(transport) - (transport[12] >> 4) * 4, 0)
        syn, fin = transport[13] >> 1 & 1, transport[13] & 1
        numbers = first, (first + length + syn + fin) % (1 << 32)
        has_payload = length > 0
    return Packet(flow, (bytes([protocol]), *ends, *about), is_fragment, numbers, has_payload)


def _message(protocol: int, message: bytes) -> Flow:
    """Return the identifier of an echo, or the ports that an error quotes: messages about others have no order."""
    if protocol not in (1, 58) or len(message) < 8:
        return ()
    if message[0] in ((0, 8) if protocol == 1 else (128, 129)):
        return (message[4:6],)
    if message[0] in ((3, 4, 5, 11, 12) if protocol == 1 else (1, 2, 3, 4)):
        quoted = message[8:]
        header = (quoted[0] & 15) * 4 if protocol == 1 and quoted else 40
        return (quoted[header : header + 4],)
    return ()


class Cable:
    """A veth pair: an instance's interface, and the end of the sender and the observer."""

    def __init__(self, index: int) -> None:
        self.port = f"n{index}"
        wire = f"w{index}"
        mtu = LONGEST - 14
        for command in (
            f"link add {wire} mtu {mtu} type veth peer name {self.port} mtu {mtu} address {MAC.hex(':')}",
            f"link set {wire} up",
            f"link set {self.port} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # protocol 0: it receives nothing
        self._socket.bind((wire, 0))

    def send(self, frame: bytes) -> None:
        """Send a frame to the instance."""
        while True:
            with contextlib.suppress(BlockingIOError):
                self._socket.send(frame)
                return

    def close(self) -> None:
        """Remove it."""
        self._socket.close()
        subprocess.run(["ip", "link", "del", self.port], check=True)


class Observer:
    """Notes the frames that leave. One socket serves all cables, because two would lose the order between them."""

    def __init__(self, note: Callable[[bytes], None]) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        self._socket.settimeout(0.05)
        self._note = note
        self._stop = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._stop:
            with contextlib.suppress(TimeoutError):
                frame, where = self._socket.recvfrom(LONGEST)
                if where[0].startswith("w") and where[2] != _OUTGOING:
                    self._note(frame)

    def close(self) -> None:
        """End it."""
        self._stop = True
        self._reader.join()
        self._socket.close()


class Replay:
    """The packets of a capture on their way through the firewall.

    Args:
        leaving: the frames that are to leave.
        window: the most packets on their way.
    """

    def __init__(self, sent: list[bytes], leaving: list[bytes], window: int = WINDOW) -> None:
        self._window = window
        self.frames = sent
        self.packets = [parse(frame) for frame in sent]
        self.expected = _by_direction(leaving)
        self._leaves = self._which_leave()
        self.came: dict[Flow, list[bytes]] = defaultdict(list)
        self._waiting: Counter[Flow] = Counter()
        self._changed = threading.Condition()
        self._numbers: dict[Flow, int] = {}
        self._stored: Counter[Flow] = Counter()
        self._bytes: Counter[Flow] = Counter()
        self._has_payload: set[Flow] = set()

    def _which_leave(self) -> list[bool]:
        """Match the frames that leave with those that are sent, in the order of each direction."""
        at: Counter[Flow] = Counter()
        told = []
        for frame, packet in zip(self.frames, self.packets, strict=True):
            rest = self.expected.get(packet.direction, [])
            leaves = at[packet.direction] < len(rest) and rest[at[packet.direction]] == frame
            at[packet.direction] += leaves
            told.append(leaves)
        return told

    def note(self, frame: bytes) -> None:
        """Note a frame that has left."""
        packet = parse(frame)
        with self._changed:
            self.came[packet.direction].append(frame)
            self._waiting[packet.flow] -= 1
            self._changed.notify_all()

    def await_turn(self, index: int) -> None:
        """Wait until a packet may be sent, and count it."""
        packet, leaves = self.packets[index], self._leaves[index]
        flow = packet.flow
        before = self._numbers.get(packet.direction)
        regular = packet.next is None or before is None or before == packet.next[0]
        is_new = packet.next is None or before is None or 0 < (packet.next[1] - before) % (1 << 32) < 1 << 31
        if leaves and (is_new or not packet.has_payload):
            self._store(packet, len(self.frames[index]))
        ends = (self._stored[flow] / INSPECTED, self._bytes[flow] / MOST_BYTES)
        near_the_end = any(0.7 < share < 1.3 for share in ends)
        most = FLOW_WINDOW if regular and leaves and not near_the_end else 1
        with self._changed:
            everything = packet.is_fragment or len(flow) == 1
            ready = self._changed.wait_for(lambda: self._has_room(flow, most, everything), LIMIT_S)
            if not ready:
                raise TimeoutError(f"packet {index}: {self._waiting[flow]} earlier ones of its flow have not left")
            self._waiting[flow] += leaves
        # The firewall forgets the numbers of packets that it drops.
        if packet.next is not None and leaves and is_new:
            self._numbers[packet.direction] = packet.next[1]

    def _store(self, packet: Packet, length: int) -> None:
        """Count a packet that the firewall stores, unless it has decided: the last place is for payload."""
        flow = packet.flow
        if packet.has_payload:
            self._has_payload.add(flow)
        if flow in self._has_payload or self._stored[flow] < INSPECTED - 1:
            self._stored[flow] += 1
            self._bytes[flow] += length

    def _has_room(self, flow: Flow, most: int, everything: bool) -> bool:
        total = self._waiting.total()
        return total == 0 if everything else self._waiting[flow] < most and total < self._window

    def settle(self) -> None:
        """Wait until all packets have left, and a moment for more."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting.total() == 0, LIMIT_S):
                raise TimeoutError(f"{self._waiting.total()} packets have not left")
        time.sleep(0.02)

    def verdict(self) -> dict[str, int]:
        """Compare the packets that came with the expected ones."""
        lost, double, reordered = 0, 0, 0
        for direction in {*self.expected, *self.came}:
            expected, came = self.expected.get(direction, []), self.came.get(direction, [])
            missing, more = Counter(expected) - Counter(came), Counter(came) - Counter(expected)
            lost += missing.total()
            double += more.total()
            reordered += not missing and not more and expected != came
        return {"lost": lost, "double": double, "reordered": reordered}


def _by_direction(all_frames: list[bytes]) -> dict[Flow, list[bytes]]:
    found: dict[Flow, list[bytes]] = defaultdict(list)
    for frame in all_frames:
        found[parse(frame).direction].append(frame)
    return found


class Mover:
    """A chain of instances, each of which takes over from the one before."""

    def __init__(self, command: list[str], helper: str, directory: Path, cables: list[Cable], chance: random.Random):
        self.command, self.helper, self.directory, self.cables, self.chance = command, helper, directory, cables, chance
        self.number = 0
        self.kills = 0
        self._lock = threading.Lock()
        self.active = cables[0]
        self.old = self._instance()
        self.new = self.old

    def _instance(self, *options: str) -> Instance:
        cable = self.cables[self.number % 2]
        name = f"i{self.number}"
        return Instance(self.command, self.directory, name, cable.port, config(self.helper), *options)

    def send(self, frame: bytes) -> None:
        """Send to the instance that has the traffic."""
        with self._lock:
            self.active.send(frame)

    def prepare(self) -> None:
        """Start the next instance."""
        self.number += 1
        self.new = self._instance("--hold")

    def kill_inspector(self, instance: Instance) -> None:
        """Kill the nf-dpi of an instance, if it runs. A move may end the instance meanwhile."""
        for children in Path(f"/proc/{instance.process.pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                    self.kills += 1

    def move(self) -> None:
        """Move the state and the traffic, and perhaps kill an inspector at some step."""
        epoch: dict[str, Any] = {"epoch": self.number}
        old, new = self.old, self.new
        how = self.chance.choice(("memfd", "copy"))
        steps: list[Callable[[], Any]] = [
            lambda: self._hold(old, new, how),
            lambda: hand_over(old, new, self.number, how),
            self._flip,
            lambda: old.ask("drain", paths=1, **epoch),
            lambda: new.ask("handover", **epoch),
        ]
        fatal = self.chance.randrange(2 * len(steps))
        for index, step in enumerate(steps):
            if index == fatal:
                self.kill_inspector(self.chance.choice((old, new)))
            step()
        self.old = new
        old.close()

    def _hold(self, old: Instance, new: Instance, how: str) -> None:
        prepared, descriptors = old.ask("prepare", epoch=self.number, secret=SECRET)
        try:
            if how == "memfd":
                new.ask("hold", epoch=self.number, mode="memfd", rings=prepared["rings"], send=descriptors)
                return
            listen = f"unix:{self.directory}/state.sock"
            Path(listen.removeprefix("unix:")).unlink(missing_ok=True)
            held, _ = new.ask(
                "hold", epoch=self.number, mode="copy", secret=SECRET, listen=listen, rings=prepared["rings"]
            )
            old.ask("precopy", epoch=self.number, to=held["address"], fit_bytes=4096)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _flip(self) -> None:
        with self._lock:
            self.active.send(last_marker(self.number))
            self.active = self.cables[self.number % 2]

    def verdicts(self) -> dict[Flow, set[str]]:
        """Return the applications of flows, by protocol and ends."""
        found: dict[Flow, set[str]] = defaultdict(set)
        start: int | None = 0
        while start is not None:
            wanted: dict[str, Any] = {"from": start, "limit": 1000}
            page, _ = self.old.ask("firewall.flows", **wanted)
            for flow in page["flows"]:
                if "application" in flow:
                    ends = [(flow["source"], flow["source_port"]), (flow["destination"], flow["destination_port"])]
                    found[_key(flow["protocol"], *ends)].add(flow["application"])
            start = page["next"]
        return found

    def close(self) -> None:
        """End all instances."""
        self.old.close()
        self.new.close()


def _key(protocol: object, *ends: tuple[str, object]) -> Flow:
    if str(protocol) not in ("6", "17"):
        ends = tuple((address, 0) for address, _ in ends)
    return (str(protocol).encode(), *sorted(f"{address} {port}".encode() for address, port in ends))


def logged(log: Path) -> dict[Flow, set[str]]:
    """Return the applications of the flows in a hit log, by protocol and ends."""
    found: dict[Flow, set[str]] = defaultdict(set)
    for line in map(json.loads, log.read_text().splitlines() if log.exists() else []):
        ends = [(line["source"], line.get("source_port", 0)), (line["destination"], line.get("destination_port", 0))]
        if "application" in line:
            found[_key(line["protocol"], *ends)].add(line["application"])
    return found


def _differences(found: dict[Flow, set[str]], expected: dict[Flow, set[str]]) -> list[str]:
    """Name the flows with another application. Of connections with the same ends, only the last one is found."""
    flows = sorted(found.keys() | expected.keys())
    pairs = [(flow, found.get(flow, set()), expected.get(flow, set())) for flow in flows]
    return [f"{flow}: {one}, expected {other}" for flow, one, other in pairs if not one or not one <= other]


def ndpireader(capture: Path, directory: Path) -> dict[Flow, set[str]]:
    """Return ndpiReader's applications of flows, by protocol and ends."""
    table = directory / "flows.csv"
    command = ["ndpiReader", "-q", "-t", "-i", str(capture), "-C", str(table)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    found: dict[Flow, set[str]] = defaultdict(set)
    with table.open(errors="replace", newline="") as file:
        for line in csv.DictReader(file):
            ends = [(line["src_ip"], line["src_port"]), (line["dst_ip"], line["dst_port"])]
            found[_key(line["protocol"], *ends)].add(line["ndpi_proto"])
    return found


def _as_classic(capture: Path, into: Path) -> None:
    """Write a capture as little-endian classic pcap, which has the packets up to the first fault."""
    into.unlink(missing_ok=True)
    subprocess.run(["tcpdump", "-r", str(capture), "-w", str(into)], capture_output=True, check=False)


def run(
    nf: str, helper: str, directory: Path, capture: Path, moves: int, chance: random.Random
) -> dict[str, Any] | None:
    """Replay a capture with moves at random packets. None: no interface takes its packets."""
    whole, out, path = directory / "in.pcap", directory / "out.pcap", directory / "replay.json"
    _as_classic(capture, whole)
    sent = cut(whole, whole) if whole.exists() else []
    if len(sent) < moves:
        return None
    log = directory / "replay.jsonl"
    log.unlink(missing_ok=True)
    path.write_text(json.dumps({**config(helper), "log": str(log)}))
    command = [nf, "replay", "firewall", str(whole), str(out), "--config", str(path)]
    subprocess.run(command, capture_output=True, check=True)
    _as_classic(out, whole.with_name("left.pcap"))
    left = frames(whole.with_name("left.pcap"))
    by_log, by_reader = logged(log), ndpireader(whole, directory)
    command = [nf, "run", "firewall"]
    told: dict[str, Any] = {"capture": capture.name, "packets": len(sent), "moves": 0, "kills": 0}
    told |= {"lost": 0, "double": 0, "reordered": 0}
    for window in (WINDOW, 1):
        replay = Replay(sent, left, window)
        found, kills = _through(replay, command, helper, directory, moves, chance)
        told["flows"], told["strayed"] = len(found), _differences(found, by_log)
        for key, count in {**replay.verdict(), "moves": moves, "kills": kills}.items():
            told[key] += count
        if not told["strayed"]:
            break
        told.setdefault("of_order", told["strayed"])
    told["of_ndpireader"] = len(found.keys() & by_reader.keys())
    # Inside tunnels, ndpiReader's flows are others.
    told["different"] = _differences(found, {flow: by_reader.get(flow, names) for flow, names in found.items()})
    return told


def _through(
    replay: Replay, command: list[str], helper: str, directory: Path, moves: int, chance: random.Random
) -> tuple[dict[Flow, set[str]], int]:
    """Send all packets through instances that move; return the applications of flows, and the number of kills."""
    cables = [Cable(index) for index in range(2)]
    observer = Observer(replay.note)
    try:
        mover = Mover(command, helper, directory, cables, chance)
        try:
            _play(replay, mover, sorted(chance.randrange(len(replay.frames)) for _ in range(moves)), chance)
            replay.settle()
            return mover.verdicts(), mover.kills
        finally:
            mover.close()
    finally:
        observer.close()
        for cable in cables:
            cable.close()


def _play(replay: Replay, mover: Mover, moves: list[int], chance: random.Random) -> None:
    """Send all packets; move at some of them, and kill the inspector at one."""
    mortal = chance.randrange(len(replay.frames))
    with ThreadPoolExecutor(1) as pool:
        moving: Future[None] | None = None
        for index, frame in enumerate(replay.frames):
            for _ in range(moves.count(index)):
                if moving is not None:
                    moving.result()
                mover.prepare()
                moving = pool.submit(mover.move)
            if index == mortal:
                mover.kill_inspector(mover.old)
            try:
                replay.await_turn(index)
            except TimeoutError:
                # The cause may be a move that has failed.
                if moving is not None:
                    moving.result()
                raise
            mover.send(frame)
        if moving is not None:
            moving.result()


def main() -> None:
    """The command."""
    directory, nf, helper, seed, moves = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    chance = random.Random(seed)
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    for capture in map(Path, sys.argv[6:]):
        try:
            told = run(nf, helper, directory, capture, moves, chance)
        except TimeoutError as error:
            told = {"capture": capture.name, "failed": str(error)}
        if told is not None:
            print(json.dumps(told), flush=True)


main()
