"""Keeps 24 hours of figures: means and maxima of 5 minutes, in the store.

A series takes 288 rows. With 200 functions the table has about 60,000 rows, 4 MB, written once in 5 minutes.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from nfagent.measurement import Measurement, Step
from nfagent.store import Store, day

STEP_S = 300
DAY_S = 86_400

SERVER = "traffic"
"""Series of the traffic through the server, Mb/s."""


def instance_series(identity: str) -> str:
    """Return the name of the series of an instance's traffic, Mb/s."""
    return f"instance/{identity}"


def cpu_series(location: str) -> str:
    """Return the name of the series of a location's use of CPU, millicores."""
    return f"cpu/{location}"


def link_series(nic: str) -> tuple[str, str]:
    """Return the names of the series of a link to an sNIC, to it and to the host, Mb/s."""
    return f"to_nic/{nic}", f"to_host/{nic}"


@dataclass
class _Sum:
    total: float = 0.0
    most: float = 0.0
    samples: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.most = max(self.most, value)
        self.samples += 1


class Day:
    """Sums up samples, and stores a step when it is over. Any thread may call `series`, one calls the others.

    Args:
        store: for the steps.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at = 0
        self._sums: dict[str, _Sum] = {}
        self._read: dict[str, tuple[Step, ...]] = {}
        self._reading = threading.Lock()

    def take(self, sample: Measurement) -> None:
        """Add a sample; store the last step if it belongs to the next one.

        Raises:
            DiskFullError: the last step is lost.
        """
        at = int(sample.at // STEP_S) * STEP_S
        over, begun, sums = at != self._at, self._at, self._sums
        if over:
            self._at, self._sums = at, {}
        for series, value in _values(sample):
            self._sums.setdefault(series, _Sum()).add(value)
        if over:
            self._store_step(begun, sums)

    def keep(self) -> None:
        """Store the step so far."""
        sums, self._sums = self._sums, {}
        self._store_step(self._at, sums)

    def _store_step(self, at: int, sums: dict[str, _Sum]) -> None:
        if not sums:
            return
        steps = {series: Step(at, each.total / each.samples, each.most) for series, each in sums.items()}
        with self._store.change(outlives="process") as change:
            day.put(change, steps, at - DAY_S)
        with self._reading:
            self._read.clear()

    def series(self, name: str) -> tuple[Step, ...]:
        """Return the stored steps of a series, oldest first."""
        with self._reading:
            if name not in self._read:
                self._read[name] = day.of(self._store.read, name)
            return self._read[name]


def _values(sample: Measurement) -> Iterator[tuple[str, float]]:
    yield SERVER, sum(rate.mbps for rate in sample.matrix.values())
    for identity, load in sample.instances.items():
        yield instance_series(identity), load.traffic.mbps
    for location, use in sample.locations.items():
        yield cpu_series(location), use.millicores
    for nic, use in sample.links.items():
        to_nic, to_host = link_series(nic)
        yield to_nic, use.to_nic.mbps
        yield to_host, use.to_host.mbps
