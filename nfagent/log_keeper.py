"""Keeps what processes write within bounds, and removes it with their instance."""

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
    """Looks at all logs now and then, from `start` to `stop`.

    Args:
        store: which instances and migrations there are.
        launchers: by location.
        is_cut_off: whether a location cannot be asked now.
    """

    def __init__(self, store: Store, launchers: Mapping[str, Launcher], is_cut_off: Callable[[str], bool]) -> None:
        self._store = store
        self._launchers = launchers
        self._is_cut_off = is_cut_off
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep logs", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a machine that is being asked has a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def look(self) -> None:
        """Cut and remove what is to be."""
        for location, launcher in {id(each): (name, each) for name, each in self._launchers.items()}.values():
            if self._is_cut_off(location) or self._stopping.is_set():
                continue
            try:
                launcher.tend_logs(self._is_kept)
            except (LaunchError, OSError) as error:
                _log.warning("logs at %s are not bounded: %s", location, error)

    def _is_kept(self, key: str) -> bool:
        subject, _, rest = key.partition(".")
        if subject == "keeper":
            return rest.isdecimal() and int(rest) in migrations.open_epochs(self._store.read)
        return instances.find(self._store.read, subject) is not None

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                self.look()
            except Exception:  # noqa: BLE001  a fault in one look must not let logs grow for ever
                _log.exception("the logs could not be looked at")
