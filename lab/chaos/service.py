"""Whether requests are answered, and when they were not."""

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lab.http_report import HttpReport
from lab.http_traffic import HttpClient

OUTAGE_S = 1.0
"""A shorter time without an answered request is not an outage."""
_LOOK_S = 0.1


@dataclass
class Outage:
    """A time without an answered request.

    Attributes:
        start, end: of the steady clock; ``end`` None: it goes on.
    """

    start: float
    end: float | None = None

    @property
    def lasts_s(self) -> float:
        """Return its length so far."""
        return (time.monotonic() if self.end is None else self.end) - self.start


class Service:
    """Watches the answers to a client's requests, each over a connection of its own, until `stop`."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._outages: list[Outage] = []
        self._answered_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch answers", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget the outages so far."""
        with self._changed:
            self._outages = []

    def outages(self) -> list[Outage]:
        """Return the outages since `begin`, oldest first."""
        with self._changed:
            return list(self._outages)

    def await_answer(self, timeout_s: float) -> bool:
        """Wait until a request is answered from now on; tell whether it was."""
        began = time.monotonic()
        with self._changed:
            return self._changed.wait_for(lambda: self._answered_at > began, timeout_s)

    def stop(self) -> HttpReport:
        """Stop watching, and the client; return its report."""
        self.close()
        return self._client.stop()

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        answered = -1
        while not self._closing.wait(_LOOK_S):
            now, found = time.monotonic(), self._answers()
            with self._changed:
                last = self._outages[-1] if self._outages else None
                going = last if last is not None and last.end is None else None
                if found > answered:
                    if going is not None:
                        going.end = now
                    answered, self._answered_at = found, now
                elif going is None and now - self._answered_at > OUTAGE_S:
                    self._outages.append(Outage(self._answered_at))
                self._changed.notify_all()

    def _answers(self) -> int:
        return sum(count for servers in self._client.status()["answers"]["new"].values() for count in servers.values())
