"""The thread that polls processes or databases for signs of life."""

import logging
import threading
import time
from abc import ABC, abstractmethod

from nfagent.errors import DiskFullError
from nfagent.pulse import Pulse

_log = logging.getLogger(__name__)

TICK_S = 0.5
_STARVED_S = 1.5  # between two looks: this process or the machine was stalled, so silence proves nothing


class PulseWatch(ABC):
    """A thread that polls pulses every half second, from `start` to `stop`.

    Args:
        watched: the name of what it watches, for the thread and the log.
        stop_s: for how long `stop` waits for the thread.
    """

    def __init__(self, watched: str, stop_s: float) -> None:
        self._pulses: dict[str, Pulse] = {}
        self._watched = watched
        self._stop_s = stop_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {watched}", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._stop_s)
        for pulse in self._pulses.values():
            pulse.close()
        self._pulses.clear()

    @abstractmethod
    def look(self) -> None:
        """Poll each pulse once, and act on its silence."""

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stopping.wait(TICK_S):
            if time.monotonic() - looked > _STARVED_S:
                for pulse in self._pulses.values():
                    pulse.forgive()
            try:
                self.look()
            except DiskFullError:
                pass  # nothing can be noted until there is room; the list of faults shows the disk meanwhile
            except Exception:  # noqa: BLE001  a failed look must not end the thread
                _log.exception("cannot watch %s", self._watched)
            looked = time.monotonic()
