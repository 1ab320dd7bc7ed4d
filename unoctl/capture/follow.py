"""Taps that follow a virtual port, and the limits of a capture."""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from server.errors import ApiNoAnswerError, ApiUnreachableError, ToolError
from server.oneswitchd.answers import VirtualPort
from unoctl.capture.place import Place, places
from unoctl.capture.tap import Packet, Tap

_LOOK_S = 0.05
"""Between two looks at where the port is: a move prepares its target first, but can go on some 10 ms later."""
_LINGER_S = 1.0
"""How long packets may still come where the port was."""
_WAITING = 10_000


@dataclass(frozen=True)
class Limits:
    """The ends of a capture; None: no such limit."""

    packets: int | None
    seconds: float | None
    bytes: int | None

    def reached(self, tally: "Tally", elapsed_s: float) -> str | None:
        """Return the option that ends the capture now, if any."""
        if self.packets is not None and tally.packets >= self.packets:
            return "--count"
        if self.bytes is not None and tally.bytes >= self.bytes:
            return "--megabytes"
        if self.seconds is not None and elapsed_s >= self.seconds:
            return "--seconds"
        return None


@dataclass
class Tally:
    """The yield of a capture.

    Attributes:
        bytes: written.
        dropped: packets that the kernel dropped because they were not read in time.
        places: where the port was, in order.
        ended: the option whose limit ended it; None: the operator or the reader.
    """

    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    places: list[Place] = field(default_factory=list)
    ended: str | None = None


class Follower:
    """A capture of one virtual port.

    Args:
        look: returns the port as it is now.
        open_tap: starts a tap at a place.
        write: takes the header once, and then each record.
        note: tells the operator something.
    """

    def __init__(
        self,
        look: Callable[[], VirtualPort],
        open_tap: Callable[[Place, "queue.Queue[Packet]"], Tap],
        write: Callable[[bytes], None],
        note: Callable[[str], None],
    ) -> None:
        self.tally = Tally()
        self._look = look
        self._open_tap = open_tap
        self._write = write
        self._note = note
        self._packets: queue.Queue[Packet] = queue.Queue(_WAITING)
        self._taps: dict[Place, Tap] = {}
        self._leaving: dict[Place, float] = {}
        self._header: bytes | None = None
        self._is_answered = True

    def run(self, limits: Limits) -> None:
        """Capture until a limit is reached.

        Raises:
            ToolError: the port's interface cannot be read.
            ServerError: oneswitchd does not know the port, or does not answer at the start.
        """
        began = time.monotonic()
        self._follow(self._look())
        looked = began
        while True:
            now = time.monotonic()
            self.tally.ended = limits.reached(self.tally, now - began)
            if self.tally.ended is not None:
                return
            if now - looked >= _LOOK_S:
                looked = now
                self._look_again()
            self._take(_LOOK_S)

    def close(self) -> None:
        """End all taps, and count what they have dropped."""
        for place in list(self._taps):
            self._close(place)

    def _look_again(self) -> None:
        try:
            port = self._look()
        except (ApiUnreachableError, ApiNoAnswerError) as error:
            if self._is_answered:
                self._note(f"{error}; a move is not followed until it answers again")
            self._is_answered = False
            return
        self._is_answered = True
        self._follow(port)

    def _follow(self, port: VirtualPort) -> None:
        wanted = places(port)
        if self.tally.places[-1:] != wanted[:1]:
            self.tally.places.append(wanted[0])
            self._note(f"capturing port {port.number} ({port.name}): {wanted[0]}")
        for place in wanted:
            self._leaving.pop(place, None)
            if place not in self._taps:
                self._taps[place] = self._open_tap(place, self._packets)
        now = time.monotonic()
        for place in [place for place in self._taps if place not in wanted]:
            if now >= self._leaving.setdefault(place, now + _LINGER_S):
                self._close(place)

    def _take(self, longest_s: float) -> None:
        try:
            tap, data, is_header = self._packets.get(timeout=longest_s)
        except queue.Empty:
            return
        if data is None:
            self._ended(tap)
        elif is_header:
            self._begin(tap, data)
        else:
            self._write(data)
            self.tally.packets += 1
            self.tally.bytes += len(data)

    def _begin(self, tap: Tap, header: bytes) -> None:
        if self._header is None:
            self._header = header
            self._write(header)
            self.tally.bytes += len(header)
        elif header != self._header:
            raise ToolError(
                f"{tap.place}: its packets have another format than before; end this capture and begin another"
            )

    def _ended(self, tap: Tap) -> None:
        if self._taps.get(tap.place) is not tap:
            return
        if tap.place == self.tally.places[-1]:
            raise tap.failure()
        # The port has left, or is not there yet: the next look tries again.
        self._close(tap.place)

    def _close(self, place: Place) -> None:
        self._leaving.pop(place, None)
        self.tally.dropped += self._taps.pop(place).stop()
