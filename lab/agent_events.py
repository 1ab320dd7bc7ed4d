"""An agent's server-sent events, collected by a thread, and a way to wait for what they announce."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

T = TypeVar("T")

_PATH = "/api/v1/events"
_LOOK_AGAIN_S = 1.0  # events do not announce everything that a condition may check


@dataclass(frozen=True)
class AgentEvent:
    """An event; ``time`` in ISO 8601."""

    id: int
    time: str
    type: str
    subject: str
    data: dict[str, Any]


class AgentEvents:
    """Follows the events of an agent from the first one, until the agent ends.

    Args:
        client: of the agent; other threads may use it too.
        told: receives each event, on a thread of its own.
    """

    def __init__(self, client: httpx.Client, told: Callable[[AgentEvent], None] | None = None) -> None:
        self._client = client
        self._told = told
        self._changed = threading.Condition()
        self._events: list[AgentEvent] = []
        self._response: httpx.Response | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="agent-events", daemon=True)
        self._thread.start()

    def all(self, kind: str = "") -> list[AgentEvent]:
        """Return the events whose type starts with ``kind``, oldest first."""
        with self._changed:
            return [event for event in self._events if event.type.startswith(kind)]

    def wait(self, condition: Callable[[], T], timeout_s: float) -> T | None:
        """Wait until ``condition`` returns a true value, and return that; None after the time limit.

        It is evaluated at once, after every event, and every second.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                seen = len(self._events)
            found = condition()
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found or None
            with self._changed:
                self._changed.wait_for(lambda seen=seen: len(self._events) > seen, min(left, _LOOK_AGAIN_S))

    def close(self) -> None:
        """Stop following."""
        self._closing = True
        if self._response is not None:
            self._response.close()
        self._thread.join(timeout=1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _follow(self) -> None:
        try:
            with self._client.stream("GET", _PATH, params={"after": 0}, timeout=None) as response:
                self._response = response
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        self._add(line.removeprefix("data: "))
                    if self._closing:
                        return
        except (httpx.HTTPError, httpx.StreamError, OSError):
            return  # the agent has ended, or this was closed; waiting threads still poll

    def _add(self, text: str) -> None:
        body = json.loads(text)
        event = AgentEvent(body["id"], body["time"], body["type"], body["subject"], body["data"])
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
        if self._told is not None:
            self._told(event)
