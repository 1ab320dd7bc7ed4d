"""Loss, duplication, reordering, corruption and delay of TCP on a wire, by `nfs/ports/examples/impair.rs`."""

import json
import shutil
import subprocess
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

from lab.bare_hosts import BareHosts


@dataclass(frozen=True)
class Faults:
    """The shares of a direction's frames that have a fault, and the delay of all."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0
    delay_ms: float = 0.0


def impair_program() -> str:
    """Return the path of the program that `tools/prepare test` builds.

    Raises:
        FileNotFoundError: it is not built.
    """
    beside = Path(sys.executable).with_name("impair")
    found = str(beside) if beside.exists() else shutil.which("impair")
    if found is None:
        raise FileNotFoundError(f"{beside} is missing: tools/prepare test builds it")
    return found


class Impairment:
    """The program between the interfaces ``w0`` and ``w1`` of a host; without faults at first."""

    def __init__(self, hosts: BareHosts, host: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = hosts.popen(host, [impair_program(), "w0", "w1"], text=True, **pipes)
        if self._line() != "ready\n":
            raise RuntimeError(f"impair did not start in {host}")

    def set(self, seed: int, forth: Faults, back: Faults | None = None) -> dict[str, dict[str, int]]:
        """Set the faults from ``w0`` to ``w1`` and back (by default the same); return the counts until now.

        The same seed and the same frames have the same faults.
        """
        numbers = [*astuple(forth), *astuple(forth if back is None else back)]
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed} {' '.join(map(str, numbers))}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()
