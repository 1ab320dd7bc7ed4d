"""A virtual port that moves between switches while packets flow to and from it."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import HYPERVISOR
from lab.tally import StreamReport
from lab.traffic import Stream
from server.oneswitchd.answers import VirtualPort

TO_THE_PORT, FROM_THE_PORT = 1, 2


@dataclass(frozen=True)
class Tour:
    """The fate of the packets in both directions while a port moved ``moves`` times."""

    moves: int
    to_port: StreamReport
    from_port: StreamReport

    @property
    def directions(self) -> tuple[StreamReport, StreamReport]:
        """Both reports."""
        return self.to_port, self.from_port

    @property
    def sent(self) -> int:
        """Count the packets sent in both directions."""
        return sum(each.sent or 0 for each in self.directions)

    @property
    def lost(self) -> int:
        """Count the packets that never arrived."""
        return sum(each.lost or 0 for each in self.directions)

    @property
    def duplicated(self) -> int:
        """Count repeated arrivals of a packet."""
        return sum(each.duplicated for each in self.directions)

    @property
    def reordered(self) -> int:
        """Count packets that arrived after a later one."""
        return sum(each.reordered for each in self.directions)

    @property
    def longest_gap_ms(self) -> float:
        """Return the longest time without an arrival."""
        return max(each.longest_gap_ms for each in self.directions)

    @property
    def longest_pause_ms(self) -> float:
        """Return the sender's own longest pause: the network is not to blame for a shorter gap."""
        return max(each.longest_pause_ms or 0.0 for each in self.directions)


class MovingHost:
    """A host with an interface on several switches, under traffic to and from another host.

    Args:
        lab: a running lab of the substrate netns.
        oneswitchd: the lab's oneswitchd.
        mobile: the host whose port moves; it has the port's name.
        peer: the other host.
        rate: packets per second and direction.
    """

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, mobile: str, peer: str, rate: float = 1000.0) -> None:
        self._lab = lab
        self._oneswitchd = oneswitchd
        self._mobile = mobile
        self._moves = 0
        self._to_port = Stream(lab, peer, mobile, rate=rate, number=TO_THE_PORT)
        self._from_port = Stream(lab, mobile, peer, rate=rate, number=FROM_THE_PORT)

    def move(self, switch: str, progress: Callable[[str], None] = lambda _: None) -> VirtualPort:
        """Move the port to its interface on ``switch``: flip, let the host send there, finish."""
        client = self._oneswitchd.client
        port = client.find_port(self._mobile)
        goal = next(each for each in self._lab.host(self._mobile).interfaces if each.switch == switch)
        progress(f"{self._mobile}: {port.switch}/{port.interface} to {switch}/{goal.port}")
        client.move_port(port.number, switch, goal.port, "flipped", None)
        self._from_port.use(self._lab.activate(self._mobile, switch).name)
        self._moves += 1
        return client.continue_move(port.number, "done")

    def finish(self) -> Tour:
        """Stop the traffic and report."""
        from_port = self._from_port.stop()
        return Tour(self._moves, self._to_port.stop(), from_port)

    def close(self) -> None:
        """End the traffic, if it is running."""
        self._to_port.close()
        self._from_port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def there_and_back(round_number: int, snic: str = "snic0") -> str:
    """Return the target of the port's n-th move, from 0: sNIC, hypervisor, sNIC, ..."""
    return HYPERVISOR if round_number % 2 else snic
