"""Hostile connections to the northbound port: mutated valid messages, fragments, silence, and no reading."""

import random
import socket
import struct
from dataclasses import dataclass, field
from functools import cache

from tests.codec.damage import damaged
from tests.codec.osken import written
from tests.codec.requests import messages
from tests.oracle import openflow as of

TABLES = range(10, 200)
"""Tables for the garbage only: well-behaved rules are in none of them."""
GROUPS_BELOW = 9
"""Groups that garbage must not use."""
_HEADER = struct.Struct("!BBHI")
_TABLE_OF_FLOW_MOD = 24
_MASTER = 2


@cache
def _originals() -> tuple[bytes, ...]:
    return tuple(map(written, messages().values()))


def valid(chance: random.Random) -> bytes:
    """Return a message of os-ken; its rules are in a garbage table, and mostly added."""
    frame = bytearray(chance.choice(_originals()))
    frame[4:8] = chance.randbytes(4)
    if frame[1] == of.FLOW_MOD:
        frame[_TABLE_OF_FLOW_MOD] = chance.choice(TABLES)
        command = chance.choices((of.ADD, of.MODIFY, of.MODIFY_STRICT, of.DELETE, of.DELETE_STRICT), (12, 1, 1, 1, 1))[
            0
        ]
        timers = (5, 6) if chance.random() < 0.2 else (0, 0)
        priority, flags = chance.randrange(4), chance.randrange(8)
        struct.pack_into("!BHHHIIIH", frame, 25, command, *timers, priority, of.NO_BUFFER, of.ANY, of.ANY, flags)
    return bytes(frame)


def mutated(chance: random.Random) -> bytes:
    """Return a valid message, possibly damaged."""
    frame = bytearray(valid(chance))
    match chance.choices(range(7), (20, 60, 10, 8, 4, 2, 1))[0]:
        case 0:
            pass
        case 1:
            frame = bytearray(damaged(bytes(frame), chance))
        case 2:
            for _ in range(chance.randint(1, 4)):
                frame[chance.randrange(8, len(frame) + 1) - 1] ^= 1 << chance.randrange(8)
        case 3:
            frame[1] = chance.randrange(256)
        case 4:
            other = valid(chance)
            at = chance.randrange(len(frame))
            frame[at:] = other[min(at, len(other)) :]
        case 5:
            del frame[chance.randrange(8, len(frame) + 1) :]
        case _:
            frame[2:4] = struct.pack("!H", chance.choice([len(frame) + 8, len(frame) - 1, len(frame) // 2, 65535]))
    return bytes(frame)


def touches_others(frame: bytes) -> bool:
    """Tell whether a frame, if accepted, may affect others' rules or their right to write."""
    kind, rest = frame[1], frame[8:]
    if kind == of.FLOW_MOD:
        return len(frame) > _TABLE_OF_FLOW_MOD and frame[_TABLE_OF_FLOW_MOD] not in TABLES
    if kind == of.GROUP_MOD:
        group = int.from_bytes(rest[4:8], "big")
        return group < GROUPS_BELOW or group > 0xFFFFFF00
    if kind == of.ROLE_REQUEST:
        return int.from_bytes(rest[:4], "big") == _MASTER
    return kind == of.PORT_MOD and int.from_bytes(rest[:4], "big") < 0xFF00


@dataclass
class Attacker:
    """Opens one connection after the other.

    Args:
        path: of the unix socket.
        chance: source of all random choices.
    """

    path: str
    chance: random.Random
    sent: int = 0
    connections: int = 0
    _socket: socket.socket | None = None
    _out: bytearray = field(default_factory=bytearray)
    _frame: bytes = b""
    """The incomplete frame, as the other side sees it."""
    _lost: bool = False
    """Whether the other side has lost track of the frames."""

    def act(self) -> None:
        """Send a burst; keep what the other side does not accept yet."""
        if self._socket is None:
            self._connect()
            return
        if not self._out:
            for _ in range(self.chance.randint(1, 40)):
                self._put(self._piece())
        self._push()
        self._read()
        if self.chance.random() < 0.02:
            self.close()

    def close(self) -> None:
        """Vanish."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self.path)
        self._socket.setblocking(False)
        self.connections += 1
        self._out, self._frame, self._lost = bytearray(self._greeting()), b"", False

    def _greeting(self) -> bytes:
        return of.message(of.HELLO, 1)

    def _piece(self) -> bytes:
        return mutated(self.chance)

    def _put(self, piece: bytes) -> None:
        """Send it, unless the resulting frames may affect others."""
        data = self._frame + piece
        while not self._lost and len(data) >= _HEADER.size:
            length = int.from_bytes(data[2:4], "big")
            if length < _HEADER.size:
                self._lost = True
            elif len(data) < length:
                break
            elif touches_others(data[:length]):
                return
            else:
                data = data[length:]
        self._frame = data
        self._out += piece
        self.sent += 1

    def _push(self) -> None:
        assert self._socket is not None
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def _read(self) -> None:
        try:
            while self._socket is not None:
                if not self._socket.recv(1 << 16):
                    self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()


class SlowReader(Attacker):
    """Sends requests and never reads."""

    def _piece(self) -> bytes:
        return (
            of.flow_request(self.chance.getrandbits(32), of.FLOW) if self.chance.random() < 0.9 else valid(self.chance)
        )

    def _read(self) -> None:
        pass


class HalfOpen(Attacker):
    """Sends part of a message and waits."""

    def act(self) -> None:
        if self._socket is None:
            self._connect()
            self._push()
        elif self.chance.random() < 0.2:
            self.close()

    def _greeting(self) -> bytes:
        start = of.message(of.HELLO, 1) + valid(self.chance)
        return start[: self.chance.randrange(20)]


class Noise(Attacker):
    """Sends something other than OpenFlow."""

    def _greeting(self) -> bytes:
        return of.message(of.HELLO, 1) if self.chance.random() < 0.5 else b""

    def _piece(self) -> bytes:
        return self.chance.randbytes(self.chance.randint(1, 200))


def attackers(path: str, chance: random.Random) -> list[Attacker]:
    """Some of each kind."""
    kinds = (Attacker, Attacker, Attacker, Attacker, SlowReader, HalfOpen, HalfOpen, Noise)
    return [kind(path, random.Random(chance.random())) for kind in kinds]
