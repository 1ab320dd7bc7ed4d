"""What an operator is shown: the dashboard's banner, the metrics, the list of faults."""

import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx

_LOOK_S = 0.25
_ANSWER_S = 2.0
_CALM = "No faults known"
_FAULTS = re.compile(r"^nfagent_faults\{[^}]*\} ([0-9.]+)$", re.MULTILINE)
_UP = re.compile(r"^nfagent_location_up\{[^}]*\} ([0-9.]+)$", re.MULTILINE)
CHANNELS = ("dashboard", "metric", "faults")
"""``faults`` is ``/api/v1/faults``, which unoctl doctor reads."""


class Watch:
    """Looks at an agent until `close`; notes when each channel first showed a fault.

    An agent that does not answer counts as a shown fault: the dashboard says so, and its metrics are absent.

    Args:
        client: of the agent, for this object only.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._since = time.time()
        self._shown: dict[str, float] = {}
        self._calm_at: float | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch the agent", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget what was shown before."""
        with self._changed:
            self._since, self._shown, self._calm_at = time.time(), {}, None

    def shown(self) -> dict[str, float]:
        """Return after how many seconds each channel showed a fault, by channel."""
        with self._changed:
            return {name: at - self._since for name, at in self._shown.items()}

    def await_calm(self, timeout_s: float) -> bool:
        """Wait until the dashboard knows no fault; tell whether it came so far."""
        began = time.time()
        with self._changed:
            return self._changed.wait_for(
                lambda: self._calm_at is not None and self._calm_at >= began, timeout=timeout_s
            )

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()
        self._thread.join(2 * _ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        looks: dict[str, Callable[[], bool]] = {
            "dashboard": self._on_dashboard,
            "metric": self._in_metrics,
            "faults": self._in_list,
        }
        while not self._closing.wait(_LOOK_S):
            for name, look in looks.items():
                try:
                    found = look()
                except (httpx.HTTPError, ValueError):
                    found = True
                with self._changed:
                    if found:
                        self._shown.setdefault(name, time.time())
                    elif name == "dashboard":
                        self._calm_at = time.time()
                        self._changed.notify_all()

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(path, timeout=_ANSWER_S).raise_for_status()

    def _on_dashboard(self) -> bool:
        return _CALM not in self._get("/dashboard").text

    def _in_metrics(self) -> bool:
        text = self._get("/metrics").text
        return any(float(value) > 0 for value in _FAULTS.findall(text)) or any(
            float(value) == 0 for value in _UP.findall(text)
        )

    def _in_list(self) -> bool:
        return bool(self._get("/api/v1/faults").json()["faults"])
