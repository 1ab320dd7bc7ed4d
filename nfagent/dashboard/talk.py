"""The traffic matrix as a map of virtual ports, by the names of their owners."""

from collections.abc import Collection
from dataclasses import dataclass

from nfagent.dashboard import figures
from nfagent.dashboard.snapshot import Snapshot, counts_traffic

MOST_PAIRS = 16
_ROW = 10  # height of a name in units of the map's box
_WIDEST = 7.0  # pixels of the busiest pair's line


@dataclass(frozen=True)
class Pair:
    """Traffic from one owner of virtual ports to another."""

    source: str
    target: str
    mbps: float

    @property
    def rate(self) -> str:
        """Return the rate, in words."""
        return figures.rate(self.mbps)


@dataclass(frozen=True)
class Line:
    """A pair on the map; the path is in a box 100 wide and `Map.height` high."""

    pair: Pair
    path: str
    width: str


@dataclass(frozen=True)
class Map:
    """The busiest pairs between a column of senders and one of receivers.

    Attributes:
        senders, receivers: names with their rates, the busiest first.
        rest: the pairs that are left out, in words; None: it shows all.
    """

    senders: tuple[tuple[str, str], ...]
    receivers: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    rest: str | None

    @property
    def rows(self) -> int:
        """Return the number of names in the longer column."""
        return max(len(self.senders), len(self.receivers))

    @property
    def height(self) -> int:
        """Return the height of the lines' box."""
        return _ROW * self.rows


def pairs(known: Snapshot, ports: Collection[int] | None = None) -> list[Pair]:
    """Return the pairs that talk now, the busiest first.

    Args:
        known: the server.
        ports: only pairs with one of these virtual ports; None: all.
    """
    if known.measured is None:
        return []
    names = _names(known)
    found: dict[tuple[str, str], float] = {}
    for (source, target), rate in known.measured.matrix.items():
        if rate.mbps > 0 and (ports is None or source in ports or target in ports):
            ends = (names.get(source, f"port {source}"), names.get(target, f"port {target}"))
            found[ends] = found.get(ends, 0.0) + rate.mbps
    made = [Pair(*ends, mbps) for ends, mbps in found.items()]
    return sorted(made, key=lambda pair: (-pair.mbps, pair.source, pair.target))


def drawn(known: Snapshot) -> Map | None:
    """Draw the map; None: traffic is not measured, or there is none."""
    if known.measured is None or not counts_traffic(known.measured):
        return None
    everything = pairs(known)
    shown, others = everything[:MOST_PAIRS], everything[MOST_PAIRS:]
    if not shown:
        return None
    senders = _column([(pair.source, pair.mbps) for pair in shown])
    receivers = _column([(pair.target, pair.mbps) for pair in shown])
    rest = f"and {len(others)} more pairs with {figures.rate(sum(pair.mbps for pair in others))}" if others else None
    lines = [_line(pair, list(senders).index(pair.source), list(receivers).index(pair.target), shown[0].mbps)
             for pair in shown]  # fmt: skip
    return Map(_worded(senders), _worded(receivers), tuple(lines), rest)


def _column(found: list[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, mbps in found:
        sums[name] = sums.get(name, 0.0) + mbps
    return sums


def _worded(column: dict[str, float]) -> tuple[tuple[str, str], ...]:
    return tuple((name, figures.rate(mbps)) for name, mbps in column.items())


def _line(pair: Pair, row: int, other: int, most: float) -> Line:
    left, right = (_ROW * each + _ROW / 2 for each in (row, other))
    # The area of a line, not its width alone, is what readers compare.
    width = max(1.0, _WIDEST * (pair.mbps / most) ** 0.5)
    return Line(pair, f"M0 {left:g}C50 {left:g} 50 {right:g} 100 {right:g}", f"{width:.1f}")


def _names(known: Snapshot) -> dict[int, str]:
    names = {number: port.name for number, port in known.switches.ports.items()}
    return names | {port.number: view.instance.name for view in known.views for port in view.instance.ports}
