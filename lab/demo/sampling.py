"""CPU time of the network functions at each switch, sampled independently of the agent's own measurements."""

import threading
import time
from types import TracebackType
from typing import Self

from lab.processes import cpu_s, in_network_namespaces
from lab.server import Lab

_PERIOD_S = 0.25


class CpuSampler:
    """Samples until closed.

    Args:
        lab: a running lab.
        switches: switches whose slots it samples.
    """

    def __init__(self, lab: Lab, switches: tuple[str, ...]) -> None:
        self._slots = {slot.netns: slot.switch for slot in lab.state.slots if slot.switch in switches}
        self._used: dict[str, dict[int, float]] = {name: {} for name in switches}
        self._samples: list[tuple[float, dict[str, float]]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-sampler", daemon=True)
        self._thread.start()

    def cores(self, switch: str, begin: float, end: float) -> float | None:
        """Return the CPU seconds per second of a switch's NFs between two times (since 1970); None: not sampled."""
        inside = [(at, used[switch]) for at, used in self._samples if begin <= at <= end]
        if len(inside) < 2:
            return None
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            at = time.time()
            for netns, pids in in_network_namespaces(list(self._slots)).items():
                used = self._used[self._slots[netns]]  # includes ended processes, so that the sum never falls
                used |= {pid: max(used.get(pid, 0.0), cpu_s(pid)) for pid in pids}
            self._samples.append((at, {name: sum(used.values()) for name, used in self._used.items()}))
