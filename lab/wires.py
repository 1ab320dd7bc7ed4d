"""Frames in and out of a lab of the substrate dummy.

Time is not part of it: `Wires.settle` returns when every injected frame, and everything it caused, has arrived
somewhere. It knows from counters: each switch has received the injected frames, each end of a PCIe link has received
what the other end sent, and each frame that a switch sent to a host is here. One pass over all switches suffices,
although it does not read them at the same time: a frame in flight in between was sent by a switch that had received its
cause after that switch was read, and so on back to a frame that was already missing at the first reading.
"""

import re
import selectors
import socket
import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.errors import ControlError
from lab.state import FILE, LabState, LinkState
from lab.unixctl import Unixctl, unixctl

Place = tuple[str, str]
"""Where a host's interface is plugged in: switch and interface name."""

Frames = dict[Place, list[bytes]]

_LENGTH = struct.Struct(">H")
_PORT = re.compile(r"^  port \d+: (\S+) .*\n    RX packets:(\d+) .*\n    TX packets:(\d+) ", re.MULTILINE)
_CHUNK = 1 << 18
_UNSETTLED_MAX = 32  # a dummy device drops frames beyond 100 in its queue, without counting them
_FRAME_MIN = 14


class UnsettledError(ControlError):
    """Injected frames neither arrived nor were counted as dropped."""


@dataclass
class _Wire:
    """One interface of a host, with its traffic since the counters' base."""

    place: Place
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    injected: int = 0
    collected: int = 0


@dataclass(frozen=True)
class _Count:
    rx: int
    tx: int


class Wires:
    """All hosts' interfaces of a running lab.

    Thread safety: one thread at a time. Anything else that makes a switch send (packet-outs) must have completed, by a
    barrier, before `settle` is called. Break and restore links only while nothing is in flight, that is after `settle`.

    Args:
        state: of a lab of the substrate dummy.

    Raises:
        ControlError: a switch does not answer, or the substrate is not dummy.

    Example:
        >>> with Wires(lab.state) as wires:                              # doctest: +SKIP
        ...     wires.inject(("hypervisor", "vm1"), frame)
        ...     arrived = wires.settle()[("snic0", "pf0vf1")]
    """

    def __init__(self, state: LabState) -> None:
        if state.substrate != "dummy":
            raise ControlError(f"lab {state.name} has substrate {state.substrate}; frames are injected in dummy only")
        self._state = state
        self._wires: dict[Place, _Wire] = {}
        self._controls: dict[str, Unixctl] = {}
        self._selector = selectors.DefaultSelector()
        self._arrived: dict[Place, list[bytes]] = defaultdict(list)
        self._unsettled = 0
        self._base: dict[Place, _Count] = {}
        self._read_at_ns = 0
        self._connect()

    def close(self) -> None:
        """Drop all connections."""
        for wire in self._wires.values():
            wire.socket.close()
        for control in self._controls.values():
            control.close()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def places(self) -> list[Place]:
        """Return all places where frames can be injected."""
        return list(self._wires)

    def reconnect(self) -> None:
        """Reconnect after an ovs-vswitchd was restarted; frames in flight are forgotten."""
        self.close()
        self._wires, self._controls, self._selector = {}, {}, selectors.DefaultSelector()
        self._arrived.clear()
        self._unsettled = 0
        self._connect()

    def inject(self, place: Place, frame: bytes) -> None:
        """Send ``frame`` from the host's interface that is plugged in at ``place``.

        Args:
            place: one of `places`.
            frame: from the destination MAC address on, without checksum; 14 to 65535 bytes.

        Raises:
            ControlError: unknown place.
            UnsettledError: earlier frames were lost.
        """
        if place not in self._wires:
            raise ControlError(f"no interface {place[1]} on {place[0]}; there are {self.places}")
        if len(frame) < _FRAME_MIN:
            raise ValueError(f"a frame of {len(frame)} bytes is not an Ethernet frame; expected at least {_FRAME_MIN}")
        if self._unsettled == 0:
            self._follow_links()
        if self._unsettled >= _UNSETTLED_MAX:
            self._settle(timeout_s=10.0)
        wire = self._wires[place]
        wire.socket.setblocking(True)
        wire.socket.sendall(_LENGTH.pack(len(frame)) + frame)
        wire.socket.setblocking(False)
        wire.injected += 1
        self._unsettled += 1

    def settle(self, timeout_s: float = 10.0) -> Frames:
        """Wait until nothing is in flight; return the frames that left at each place, in order.

        The result contains only places where frames left. The next call returns later frames.

        Args:
            timeout_s: time limit.

        Raises:
            UnsettledError: frames are still missing; the message says where.
        """
        self._settle(timeout_s)
        arrived, self._arrived = self._arrived, defaultdict(list)
        return dict(arrived)

    def stop_time(self) -> None:
        """Stop the clocks of all switches; only `warp` advances them."""
        for control in self._controls.values():
            control.call("time/stop")

    def warp(self, milliseconds: int) -> None:
        """Advance the clocks of all switches."""
        for control in self._controls.values():
            control.call("time/warp", str(milliseconds))

    def purge(self) -> None:
        """Flush the datapaths' caches, so that flow statistics are complete."""
        for control in self._controls.values():
            control.call("revalidator/purge")

    # ---- inner workings

    def _connect(self) -> None:
        try:
            self._connect_all()
        except BaseException:
            self.close()
            raise

    def _connect_all(self) -> None:
        for switch in self._state.switches:
            self._controls[switch.name] = Unixctl(Path(switch.control))
        for host in self._state.hosts:
            for interface in host.interfaces:
                self._open((interface.switch, interface.port), str(interface.socket))
        for switch in self._state.switches:
            # The main loop takes the second connection in a later turn, after accept(). It may answer several requests
            # of one connection in the same turn.
            unixctl(Path(switch.control), "version")
            unixctl(Path(switch.control), "version")
        self._base = self._counters()

    def _open(self, place: Place, path: str) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            raise ControlError(f"interface {place[1]} of {place[0]}: {path}: {error.strerror}") from error
        connection.setblocking(False)
        self._wires[place] = _Wire(place, connection)
        self._selector.register(connection, selectors.EVENT_READ, self._wires[place])

    def _settle(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._follow_links()
        while True:
            counters = self._counters()
            self._collect()
            missing = self._missing(counters)
            if not missing:
                self._unsettled = 0
                return
            if time.monotonic() > deadline:
                raise UnsettledError(f"lab {self._state.name}: after {timeout_s:g} s, {'; '.join(missing)}")

    def _follow_links(self) -> None:
        """Reset the counters of a restored link, which lost frames while it was broken.

        Called before the first of several frames is injected, because it changes the counters from then on.
        """
        file = Path(self._state.directory) / FILE
        changed_ns = file.stat().st_mtime_ns
        if changed_ns == self._read_at_ns:
            return
        were_up = {link.switch for link in self._state.links if link.up}
        self._state = LabState.read(Path(self._state.directory))
        self._read_at_ns = changed_ns
        mended = [link for link in self._state.links if link.up and link.switch not in were_up]
        counters = self._counters() if mended else {}
        for link in mended:
            for end in self._ends(link):
                self._base[end] = counters[end]

    def _ends(self, link: LinkState) -> tuple[Place, Place]:
        return (self._state.switches[0].name, link.hypervisor), (link.switch, link.local)

    def _counters(self) -> dict[Place, _Count]:
        return {
            (switch, match[1]): _Count(int(match[2]), int(match[3]))
            for switch, control in self._controls.items()
            for match in _PORT.finditer(control.call("dpctl/show", "-s"))
        }

    def _collect(self) -> None:
        for key, _ in self._selector.select(timeout=0):
            wire: _Wire = key.data
            chunk = wire.socket.recv(_CHUNK)
            if not chunk:
                raise ControlError(f"ovs-vswitchd of {wire.place[0]} closed the wire of {wire.place[1]}; reconnect()")
            wire.received += chunk
            for frame in _frames(wire.received):
                self._arrived[wire.place].append(frame)
                wire.collected += 1

    def _missing(self, counters: dict[Place, _Count]) -> list[str]:
        """Describe the frames in flight."""
        missing = []
        for place, wire in self._wires.items():
            rx, tx = self._since_base(counters, place)
            if rx != wire.injected:
                missing.append(f"{place[0]} received {rx} of {wire.injected} frames injected at {place[1]}")
            if tx != wire.collected:
                missing.append(f"{wire.collected} of {tx} frames that {place[0]} sent to {place[1]} arrived")
        for link in self._state.links:
            ends = self._ends(link)
            for sender, receiver in (ends, ends[::-1]):
                tx, rx = self._since_base(counters, sender)[1], self._since_base(counters, receiver)[0]
                if tx != rx and link.up:
                    missing.append(f"{receiver[0]} received {rx} of {tx} frames that {sender[0]} sent over PCIe")
        return missing

    def _since_base(self, counters: dict[Place, _Count], place: Place) -> tuple[int, int]:
        now, base = counters.get(place, _Count(0, 0)), self._base.get(place, _Count(0, 0))
        return now.rx - base.rx, now.tx - base.tx


def _frames(received: bytearray) -> list[bytes]:
    """Extract the complete frames from ``received``."""
    frames = []
    at = 0
    while len(received) - at >= _LENGTH.size:
        end = at + _LENGTH.size + _LENGTH.unpack_from(received, at)[0]
        if end > len(received):
            break
        frames.append(bytes(received[at + _LENGTH.size : end]))
        at = end
    del received[:at]
    return frames
