"""Limits the size of processes' logs, and removes them with their instance."""

import logging
import threading
from collections.abc import Callable, Mapping

from nfagent.errors import LaunchError
from nfagent.launch import Launcher
from nfagent.store import Store, instances, migrations

_log = logging.getLogger(__name__)

_EVERY_S = 30.0
_STOP_S = 5.0


class LogKeeper:
    """Checks all logs periodically, from `start` to `stop`.

    Args:
        store: to read instances and migrations from.
        launchers: by location.
        is_cut_off: whether a location is disconnected now.
    """

    def __init__(self, store: Store, launchers: Mapping[str, Launcher], is_cut_off: Callable[[str], bool]) -> None:
        self._store = store
        self._launchers = launchers
        self._is_cut_off = is_cut_off
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep logs", daemon=True)

    def start(self) -> None:
        """Start checking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; a machine that is being asked gets a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def look(self) -> None:
        """Truncate large logs and remove orphaned ones."""
        for location, launcher in {id(each): (name, each) for name, each in self._launchers.items()}.values():
            if self._is_cut_off(location) or self._stopping.is_set():
                continue
            try:
                launcher.tend_logs(self._is_kept)
            except (LaunchError, OSError) as error:
                _log.warning("cannot limit logs at %s: %s", location, error)

    def _is_kept(self, key: str) -> bool:
        subject, _, rest = key.partition(".")
        if subject == "keeper":
            return rest.isdecimal() and int(rest) in migrations.open_epochs(self._store.read)
        return instances.find(self._store.read, subject) is not None

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                self.look()
            except Exception:  # noqa: BLE001  an error must not let logs grow without limit
                _log.exception("cannot check the logs")
