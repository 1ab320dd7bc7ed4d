"""A controller that knows its intent: it repeats every message without a barrier reply."""

import itertools
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracle import openflow as of

PORTS = 4
_HEADER = struct.Struct("!BBHI")
_ANY = 0xFFFFFFFF
_ADD, _DELETE, _DELETE_STRICT = 0, 3, 4
_GROUP_ADD, _GROUP_DELETE = 0, 2
_ADDRESSES, _GROUPS = 25, 3
_CONNECT_S = 30.0


@dataclass(frozen=True)
class Key:
    """A rule's match: a destination, of one port's packets or of all."""

    port: int | None
    address: int


@dataclass
class Intent:
    """The tables' content if every message took effect immediately."""

    rules: dict[Key, tuple[int, int | None]] = field(default_factory=dict)
    """Cookie and group of each rule."""
    groups: set[int] = field(default_factory=set)

    def cookies(self, ports: set[int] | None = None) -> set[int]:
        """Return the cookies of all rules, or of those that some of the ports need."""
        wanted = (key for key in self.rules if ports is None or key.port is None or key.port in ports)
        return {self.rules[key][0] for key in wanted}


@dataclass(frozen=True)
class _Batch:
    xid: int
    frames: bytes


class Controller:
    """Writes rules at random.

    Args:
        target: ``unix:PATH`` of the switch, which need not be listening yet.
        chance: source of the rules.
    """

    def __init__(self, target: Callable[[], str], chance: random.Random) -> None:
        self.intent = Intent()
        self.acknowledged = 0
        self._target = target
        self._chance = chance
        self._numbers = itertools.count(1)
        self._unacknowledged: deque[_Batch] = deque()
        self._socket: socket.socket | None = None
        self._received = bytearray()

    def connect(self) -> None:
        """Connect and repeat unacknowledged messages."""
        self.kill()
        deadline = time.monotonic() + _CONNECT_S
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._target().removeprefix("unix:"))
                break
            except OSError:
                connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._socket = connection
        self._received.clear()
        self._send(of.message(of.HELLO, 0) + b"".join(batch.frames for batch in self._unacknowledged))

    def kill(self) -> None:
        """Disconnect in the middle of anything."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def write(self) -> None:
        """Change something, and request a barrier."""
        frames = b"".join(self._change() for _ in range(self._chance.randint(1, 20)))
        xid = next(self._numbers)
        batch = _Batch(xid, frames + of.message(of.BARRIER_REQUEST, xid))
        self._unacknowledged.append(batch)
        self._send(batch.frames)

    def pump(self, seconds: float) -> None:
        """Read for this long."""
        deadline = time.monotonic() + seconds
        while self._socket is not None and (left := deadline - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left)[0]:
                self._read()

    def finish(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            TimeoutError: it was not.
        """
        deadline = time.monotonic() + _CONNECT_S
        while self._unacknowledged:
            if self._socket is None:
                self.connect()
            self.pump(0.02)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._unacknowledged)} barriers were not answered")

    def _send(self, frames: bytes) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(frames)
        except OSError:
            self.kill()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            some = self._socket.recv(1 << 16)
        except OSError:
            some = b""
        if not some:
            return self.kill()
        self._received += some
        while len(self._received) >= _HEADER.size:
            _, kind, length, xid = _HEADER.unpack_from(self._received)
            if len(self._received) < length:
                return None
            frame = bytes(self._received[:length])
            del self._received[:length]
            if kind == of.ECHO_REQUEST:
                self._send(of.message(of.ECHO_REPLY, xid, frame[_HEADER.size :]))
            elif kind == of.BARRIER_REPLY:
                # Barriers repeated after a reconnect count as the same ones.
                while self._unacknowledged and self._unacknowledged[0].xid <= xid:
                    self._unacknowledged.popleft()
                    self.acknowledged += 1
        return None

    # ---- messages

    def _change(self) -> bytes:
        kind = self._chance.random()
        intent, cookie = self.intent, next(self._numbers)
        if kind < 0.7:
            key = self._key()
            usable = sorted(intent.groups)
            group = self._chance.choice(usable) if usable and self._chance.random() < 0.2 else None
            intent.rules[key] = (cookie, group)
            # Repeated after its group was deleted it is refused; the rule that it replaced must be gone then, too.
            first = b"" if group is None else _flow_mod(_DELETE_STRICT, key, 0, None, 0)
            return first + _flow_mod(_ADD, key, cookie, group, self._chance.randint(1, PORTS))
        if kind < 0.85:
            key = self._key()
            intent.rules.pop(key, None)
            return _flow_mod(_DELETE_STRICT, key, 0, None, 0)
        if kind < 0.88:
            port = self._chance.randint(1, PORTS)
            intent.rules = {key: rule for key, rule in intent.rules.items() if key.port != port}
            return _delete_of_port(port)
        group = self._chance.randint(1, _GROUPS)
        if group in intent.groups:
            intent.groups.remove(group)
            intent.rules = {key: rule for key, rule in intent.rules.items() if rule[1] != group}
            return of.message(of.GROUP_MOD, 0, struct.pack("!HBxI", _GROUP_DELETE, 0, group))
        intent.groups.add(group)
        bucket = struct.pack("!HHIIxxxx", 32, 0, _ANY, _ANY) + struct.pack("!HHIH6x", 0, 16, group, 0)
        return of.message(of.GROUP_MOD, 0, struct.pack("!HBxI", _GROUP_ADD, 0, group) + bucket)

    def _key(self) -> Key:
        port = self._chance.randint(0, PORTS)
        return Key(port or None, self._chance.randrange(_ADDRESSES))


def _flow_mod(command: int, key: Key, cookie: int, group: int | None, out: int) -> bytes:
    oxm = b"" if key.port is None else struct.pack("!HBBI", 0x8000, 0 << 1, 4, key.port)
    oxm += struct.pack("!HBBH", 0x8000, 5 << 1, 2, 0x0800)
    oxm += struct.pack("!HBBI", 0x8000, 12 << 1, 4, 0x0A000000 + key.address)
    action = struct.pack("!HHIH6x", 0, 16, out, 0) if group is None else struct.pack("!HHI", 22, 8, group)
    apply = struct.pack("!HH4x", 4, 8 + len(action)) + action if command == _ADD else b""
    return _encode(command, 0, 100, cookie, oxm, apply)


def _delete_of_port(port: int) -> bytes:
    return _encode(_DELETE, 0xFF, 0, 0, struct.pack("!HBBI", 0x8000, 0 << 1, 4, port), b"")


def _encode(command: int, table: int, priority: int, cookie: int, oxm: bytes, instructions: bytes) -> bytes:
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    numbers = (cookie, 0, table, command, 0, 0, priority, _ANY, _ANY, _ANY, 0)
    return of.message(of.FLOW_MOD, 0, struct.pack("!QQBBHHHIIIH2x", *numbers) + match + instructions)
