"""The demo's traffic: two HTTP clients that count every request, and a stream of numbered packets through the VIP."""

from contextlib import ExitStack
from dataclasses import dataclass

from lab.demo.site import DATA_VIP, OUTSIDE, SECOND, SINK, WEB_VIP
from lab.frames import Endpoint
from lab.http_report import HttpReport
from lab.http_traffic import HttpClient
from lab.server import Lab
from lab.tally import StreamReport
from lab.traffic import Stream

_KEPT = 20
_FRAME_BYTES = 128


@dataclass(frozen=True)
class Level:
    """An amount of traffic.

    Attributes:
        kept, new: requests per second of the client behind the sNIC.
        packets: packets per second.
    """

    name: str
    kept: float
    new: float
    packets: float


LITTLE = Level("little", 2, 1, 20)
MUCH = Level("much", 260, 40, 320)
_SECOND_KEPT, _SECOND_NEW = 2, 2
_ALONE_KEPT, _ALONE_NEW = 5, 10


class Traffic:
    """Flows from its creation on: the second client's rate is constant, `set` changes the rest.

    Args:
        lab: a running lab with the service deployed.
        mac: of the network function's port.

    Raises:
        ControlError: a client could not connect.
    """

    def __init__(self, lab: Lab, mac: str) -> None:
        self._lab = lab
        with ExitStack() as stack:
            self.outside = stack.enter_context(HttpClient(lab, OUTSIDE, WEB_VIP, _KEPT))
            self.second = stack.enter_context(HttpClient(lab, SECOND, WEB_VIP, _KEPT))
            to = Endpoint(mac, DATA_VIP)
            self._stream = stack.enter_context(
                Stream(lab, OUTSIDE, SINK, rate=LITTLE.packets, size=_FRAME_BYTES, to=to)
            )
            self._stack = stack.pop_all()

    def set(self, level: Level) -> None:
        """Change the rates, and count under the level's name."""
        for client in (self.outside, self.second):
            client.phase(level.name)
        self.outside.rate(level.kept, level.new)
        self.second.rate(_SECOND_KEPT, _SECOND_NEW)
        self._stream.set_rate(level.packets)

    def end_outside(self) -> tuple[HttpReport, StreamReport]:
        """End the traffic behind the sNIC's wire, and report."""
        stream = self._stream.stop()
        return self.outside.stop(), stream

    def set_second_alone(self) -> None:
        """Let the second client send often enough to measure how long it is not served."""
        self.second.rate(_ALONE_KEPT, _ALONE_NEW)

    def set_second_as_before(self) -> None:
        """Return the second client to its earlier rate."""
        self.second.rate(_SECOND_KEPT, _SECOND_NEW)

    def begin_outside_again(self) -> None:
        """Start a client behind the sNIC's wire again."""
        self.outside = self._stack.enter_context(HttpClient(self._lab, OUTSIDE, WEB_VIP, _KEPT))
        self.outside.phase("again")
        self.outside.rate(LITTLE.kept, LITTLE.new)

    def end_outside_again(self) -> HttpReport:
        """End it, and report."""
        return self.outside.stop()

    def end_second(self) -> HttpReport:
        """End the second client, and report."""
        return self.second.stop()

    def close(self) -> None:
        """End the remaining traffic."""
        self._stack.close()
