"""The counters of ports and tables at the start of a run, which nothing resets."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.oracle import openflow as of


@dataclass
class Baseline:
    """The counters of ports and tables at the start of the run.

    The first counters of a port are those that every version has.
    """

    ports: dict[int, tuple[int, ...]] = field(default_factory=dict)
    tables: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def port(self, number: int, counters: Iterable[int]) -> str:
        """Describe what a port has counted since."""
        return f"port {number} counters {_since(counters, self.ports.get(number))}"

    def table(self, number: int, active: int, counters: Iterable[int]) -> list[str]:
        """Describe a table with activity since."""
        lookups, matched = _since(counters, self.tables.get(number))
        if not (active or lookups or matched):
            return []
        return [f"table {number} active {active} lookups {lookups} matched {matched}"]


def _since(now: Iterable[int], then: Iterable[int] | None) -> list[int]:
    return list(now) if then is None else [(new - old) & of.MASK64 for new, old in zip(now, then, strict=False)]
