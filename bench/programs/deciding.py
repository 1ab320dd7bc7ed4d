"""Time and memory of the optimiser's decisions, with many instances whose traffic is noise.

In a separate process, over a store, with simulated measurements: the agent's own parts, without switches.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.config import DecideConfig, QuotaConfig
from nfagent.decide.decider import PlacementDecider
from nfagent.measurement import Coefficient, Load, LocationUse, Measurement, Rate, Step
from nfagent.model import Flavor, Instance, InstancePort, Kind, Running
from nfagent.monitor.layout import Layout, SwitchLayout
from nfagent.store import Store, instances, migrations, processes
from nfagent.store.instances import Filter
from programs.memory import rss_mb

_HOST, _NIC = "hypervisor", "snic0"
_KINDS = ("lb", "dpi", "nat")
_FIXED = (1, 2, 3, 4)  # virtual ports 1 and 2 of VMs, 3 and 4 of wires
_KEPT = 300
_NOISE = 0.3


class _Traffic:
    """Traffic through each instance from one fixed port to another, as the monitor would measure it."""

    def __init__(self, store: Store, source: random.Random) -> None:
        self._store = store
        self._source = source
        self._ring: list[Measurement] = []
        self._mean: dict[str, tuple[float, int, int]] = {}
        self.now = 0.0

    def pass_second(self) -> None:
        """Add a sample."""
        self.now += 1.0
        matrix: dict[tuple[int, int], Rate] = {}
        loads: dict[str, Load] = {}
        for view in instances.views(self._store.read, Filter()):
            mean, origin, goal = self._mean.setdefault(view.instance.id, self._draw())
            mbps = mean * self._source.uniform(1 - _NOISE, 1 + _NOISE)
            rate = Rate(mbps, mbps * 200)
            (port,) = view.instance.ports
            matrix[origin, port.number] = matrix[port.number, goal] = rate
            loads[view.instance.id] = Load(0.3, round(mbps), Rate(2 * mbps, mbps * 400), 100)
        uses = {_HOST: LocationUse(0, 64_000), _NIC: LocationUse(0, 16_000)}
        self._ring = [*self._ring[1 - _KEPT :], Measurement(self.now, 1.0, matrix, 0.01, loads, {}, uses)]

    def _draw(self) -> tuple[float, int, int]:
        return self._source.uniform(5, 150), self._source.choice(_FIXED), self._source.choice(_FIXED)

    def newest(self) -> Measurement | None:
        return self._ring[-1] if self._ring else None

    def history(self) -> list[Measurement]:
        return list(self._ring)

    def day(self, series: str) -> list[Step]:
        del series
        return []

    def coefficients(self) -> list[Coefficient]:
        costs = {"host": 0.5, "nic": 1.0}
        return [Coefficient(kind, where, cost, 100, 0.1) for kind in _KINDS for where, cost in costs.items()]


def measure(count: int, seconds: int) -> dict[str, Any]:
    """Measure ``decision_s`` and so on over a number of one-second periods, in a separate process."""
    command = [sys.executable, "-m", "programs.deciding", str(count), str(seconds)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def _measure(count: int, seconds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="nfagent-") as name:
        store = Store(Path(name))
        traffic = _Traffic(store, random.Random(1))
        slots = {f"slot{number}": 1 for number in range(count)}
        capacity = {
            _HOST: Capacity(64_000, None, None, 1.0, slots),
            _NIC: Capacity(16_000, None, 10_000, 2.0, slots),
        }
        kinds = {kind: Kind(kind, "", True, (1, 2), ("nf",)) for kind in _KINDS}
        quota = QuotaConfig()
        catalog = Catalog(kinds, {"small": Flavor("small", 1, 256)}, tuple(capacity), (), quota, b"abc")
        decider = PlacementDecider(
            store,
            catalog,
            capacity,
            traffic,
            lambda: _layout(store),
            frozenset,
            _Fit(),
            DecideConfig(),
            clock=lambda: traffic.now,
        )
        for number in range(count):
            _add(store, number)
        for _ in range(_KEPT - seconds):
            traffic.pass_second()
        wall, cpu = [], []
        for _ in range(seconds):
            traffic.pass_second()
            begun, used = time.perf_counter(), time.process_time()
            decider.step()
            wall.append(time.perf_counter() - begun)
            cpu.append(time.process_time() - used)
            _move(store)
        figures = {
            "decision_s": _p99(wall),
            "decision_max_s": round(max(wall), 3),
            "decision_cpu_s": _p99(cpu),
            "decision_max_cpu_s": round(max(cpu), 3),
            "deciding_share": round(sum(cpu) / seconds, 3),
            "decision_moves": len(migrations.endings(store.read, 0.0)),
            "decision_rss_mb": rss_mb(os.getpid()),
            "decision_peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }
        store.close()
    return figures


def _p99(times: list[float]) -> float:
    return round(sorted(times)[max(0, int(len(times) * 0.99) - 1)], 3)


def _add(store: Store, number: int) -> None:
    port = InstancePort(1000 + number, f"nf{number}", f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")
    fields: dict[str, Any] = {"project": "acme", "flavor": "small", "config": {}, "labels": {}, "pin": None}
    made = Instance(
        id=str(uuid.uuid4()),
        name=f"nf{number}",
        kind=_KINDS[number % len(_KINDS)],
        target=None,
        present=True,
        generation=1,
        created=0.0,
        ports=(port,),
        **fields,
    )
    with store.change() as change:
        instances.add(change, made)
        row = Running(str(uuid.uuid4()), made.id, "serving", _HOST, f"slot{number}", "active", 1, 0.0)
        processes.add(change, row)


def _move(store: Store) -> None:
    """Pretend that every wanted move has happened a moment later."""
    for view in instances.views(store.read, Filter()):
        goal, running = view.instance.target, view.running
        if running is None or goal in (None, running.location):
            continue
        with store.change() as change:
            migration = migrations.request(change, view.instance, running.location, goal, "state")
            processes.update(change, running, location=goal)
            migrations.end(change, migration, "done", None, {})


class _Fit:
    """See `nfagent.protocols.Fitness`: every location has everything."""

    def lacks(self, instance: Instance, location: str) -> str | None:  # noqa: ARG002
        return None

    def look(self, kind: Kind, config: Mapping[str, Any], ports: int, location: str) -> str | None:  # noqa: ARG002
        return None


def _layout(store: Store) -> Layout:
    layout = Layout({_HOST: SwitchLayout(), _NIC: SwitchLayout()})
    layout.home = {port: _HOST if port < 3 else _NIC for port in _FIXED}
    for view in instances.views(store.read, Filter()):
        if view.running is not None:
            layout.home |= {port.number: view.running.location for port in view.instance.ports}
    layout.executor = dict(layout.home)
    return layout


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
