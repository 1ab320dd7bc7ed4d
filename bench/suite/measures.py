"""The figures that count, as measures.toml lists them, and what became of each since a saved run."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
TOLERATED = 0.1
"""The share by which a figure may be worse than at the last release."""


@dataclass(frozen=True)
class Measure:
    """A figure of a benchmark.

    Attributes:
        benchmark: its name in bench/.
        path: of the figure in the benchmark's JSON: keys, and positions in lists, with dots between.
        better: the direction of an improvement.
        aim: where the project wants it to be; None: as good as it gets.
        absolute: whether it depends on the machine.
    """

    benchmark: str
    path: str
    better: Literal["lower", "higher"]
    aim: float | None = None
    absolute: bool = False

    def find(self, result: dict[str, Any]) -> float | None:
        """Return the figure; None: the benchmark had no peer to compare with.

        Raises:
            KeyError, IndexError: the benchmark does not print it.
        """
        value: Any = result
        for key in self.path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return None if value is None else float(value)

    def is_met(self, value: float) -> bool | None:
        """Return whether a value reaches the aim; None: there is none."""
        if self.aim is None:
            return None
        return value <= self.aim if self.better == "lower" else value >= self.aim

    def change(self, before: float, now: float) -> float | None:
        """Return by which share of the value before it is now worse; negative: better; None: it was 0 before.

        >>> Measure("rtt", "added", "lower").change(100, 120)
        0.2
        >>> Measure("flowmods", "ratio", "higher").change(0.8, 0.6)
        0.25
        """
        if before == 0:
            return None
        worse = now - before if self.better == "lower" else before - now
        return round(worse / abs(before), 4)

    def has_regressed(self, before: float, now: float) -> bool:
        """Tell whether it is worse by more than is tolerated. Of what did not occur before, nothing is tolerated."""
        change = self.change(before, now)
        if change is None:
            return now > before if self.better == "lower" else now < before
        return change > TOLERATED


def load(path: Path = FOLDER / "measures.toml") -> list[Measure]:
    """Read the list."""
    document = tomllib.loads(path.read_text())
    return [Measure(name, key, **entry) for name, figures in document.items() for key, entry in figures.items()]
