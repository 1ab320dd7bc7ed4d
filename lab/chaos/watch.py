"""The operator's view: the dashboard's banner, the metrics, the list of faults, the events."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

SHOWN_S = 5.0
"""An outage has to be shown within this time."""
_LOOK_S, _LOOKS = 0.25, 3
_ANSWER_S = 2.0
_DOCTOR_S = 60.0
_CALM = "No faults known"
_FAULTS = re.compile(r"^nfagent_faults\{[^}]*\} ([0-9.]+)$", re.MULTILINE)
_FREE = re.compile(r"^nfagent_store_free_bytes ([0-9.e+]+)$", re.MULTILINE)
_NARROW_BYTES = 64 << 20
_NEWEST = re.compile(r"^nfagent_events_total ([0-9.e+]+)$", re.MULTILINE)
_WAITING = re.compile(r"^nfagent_store_waiting_seconds ([0-9.e+-]+)$", re.MULTILINE)
_STALLED_S = 2.0
_UP = re.compile(r"^nfagent_(?:location|oneswitchd|database)_up(?:\{[^}]*\})? ([0-9.]+)$", re.MULTILINE)
_EVENTS = frozenset(
    {"process.error", "process.gone", "process.silent", "location.down", "oneswitchd.down", "database.down"}
)
CHANNELS = ("dashboard", "metric", "faults", "event")
"""``faults`` is ``/api/v1/faults``, which unoctl doctor reads."""


class Watch:
    """Looks at an agent until `close`; notes when each channel showed a fault.

    An agent that does not answer counts as a shown fault: the dashboard says so, its metrics are absent, and events do
    not come.

    Args:
        client: of the agent, for this object only; it may make connections in several threads.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._since = time.monotonic()
        self._shown: dict[str, list[float]] = {}
        self._calm_at: dict[str, float] = {}  # when the last look that found nothing began, by channel
        # A stream that begins without it lacks what happens before it is open.
        self._last_event = int(float(_NEWEST.findall(self._get("/metrics").text)[0]))
        self._changed = threading.Condition()
        self._closing = threading.Event()
        looks = {"dashboard": self._on_dashboard, "metric": self._in_metrics, "faults": self._in_list}
        self._threads = [threading.Thread(target=self._follow, name="follow events", daemon=True)]
        self._threads += [
            threading.Thread(target=self._look, args=(name, look), name=f"watch {name}", daemon=True)
            for name, look in looks.items()
        ]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """Forget what was shown before."""
        with self._changed:
            self._since, self._shown, self._calm_at = time.monotonic(), {}, {}

    def shown_after(self, start: float) -> dict[str, float]:
        """Return how long after a moment of the steady clock each channel showed a fault, at first, by channel.

        An event that came between `begin` and that moment shows it, too.
        """
        with self._changed:
            found = {name: [at for at in times if at >= start] for name, times in self._shown.items()}
            found["event"] = [max(at, start) for at in self._shown.get("event", ())]
        return {name: round(min(times) - start, 2) for name, times in found.items() if times}

    def await_calm(self, timeout_s: float) -> bool:
        """Wait until neither dashboard nor metrics nor list know a fault; tell whether it came so far."""
        began = time.monotonic()
        with self._changed:
            return self._changed.wait_for(
                lambda: len(calm := self._calm_at) == _LOOKS and min(calm.values()) >= began, timeout=timeout_s
            )

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()
        for thread in self._threads:
            thread.join(2 * _ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _look(self, name: str, look: Callable[[], bool]) -> None:
        """Look at one channel, in its own thread: an agent that does not answer must not delay the others' looks."""
        while not self._closing.wait(_LOOK_S):
            began = time.monotonic()
            try:
                found = look()
            except (httpx.HTTPError, ValueError):
                self._show(*((name, "event") if name == "metric" else (name,)))
                continue
            if found:
                self._show(name)
                continue
            with self._changed:
                self._calm_at[name] = began
                self._changed.notify_all()

    def _show(self, *names: str) -> None:
        with self._changed:
            for name in names:
                self._calm_at.pop(name, None)
                self._shown.setdefault(name, []).append(time.monotonic())

    def _follow(self) -> None:
        while not self._closing.wait(_LOOK_S):
            headers = {"Last-Event-ID": str(self._last_event)}
            try:
                with self._client.stream("GET", "/api/v1/events", headers=headers, timeout=_ANSWER_S) as stream:
                    for line in stream.iter_lines():
                        if line.startswith("data: "):
                            self._take(json.loads(line.removeprefix("data: ")))
            except (httpx.HTTPError, ValueError):
                continue  # no event for a while, or no agent

    def _take(self, event: dict[str, Any]) -> None:
        self._last_event = int(event.get("id", event.get("oldest", 0)))
        if event.get("type") in _EVENTS or event.get("data", {}).get("outcome") == "failed":
            self._show("event")

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(path, timeout=_ANSWER_S).raise_for_status()

    def _on_dashboard(self) -> bool:
        return _CALM not in self._get("/dashboard").text

    def _in_metrics(self) -> bool:
        text = self._get("/metrics").text
        found = (float(value) > 0 for value in _FAULTS.findall(text))
        down = (float(value) == 0 for value in _UP.findall(text))
        full = (float(value) < _NARROW_BYTES for value in _FREE.findall(text))
        stalls = (float(value) > _STALLED_S for value in _WAITING.findall(text))
        return any(found) or any(down) or any(full) or any(stalls)

    def _in_list(self) -> bool:
        return bool(self._get("/api/v1/faults").json()["faults"])


def advice(server_toml: Path, agent_toml: Path) -> list[str]:
    """Return what ``unoctl doctor`` tells a person to do now about what has failed."""
    argv = [sys.executable, "-m", "unoctl", "--config", str(server_toml), "--format", "json", "doctor"]
    environment = {"NFAGENT_CONFIG": str(agent_toml), "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_DOCTOR_S, env=environment, check=False)
    try:
        found = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        return []
    return [f"{each['subject']}: {each['mend']}" for each in found if each["level"] == "fail" and each.get("mend")]
