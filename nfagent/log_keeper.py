"""Limits the size of processes' logs, names them by function, and removes them with their instance."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from nfagent.errors import LaunchError
from nfagent.launch import Launcher
from nfagent.launch.local import LocalLauncher
from nfagent.store import Store, instances, migrations, processes

_log = logging.getLogger(__name__)

_EVERY_S = 30.0
_NAMES_S = 2.0  # at most this often: each start and end is an event
_STOP_S = 5.0
_NAMING = ("instance.", "process.", "migration.ended")  # events after which a log may need another name


class LogKeeper:
    """Checks all logs periodically, and names those of this machine after each change, from `start` to `stop`.

    Args:
        store: to read instances and migrations from.
        launchers: by location.
        local: the one of this machine.
        is_cut_off: whether a location is disconnected now.
    """

    def __init__(
        self,
        store: Store,
        launchers: Mapping[str, Launcher],
        local: LocalLauncher,
        is_cut_off: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._launchers = launchers
        self._local = local
        self._named: dict[tuple[str, str], str] | None = None
        self._is_cut_off = is_cut_off
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep logs", daemon=True)

    def start(self) -> None:
        """Start checking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; a machine that is being asked gets a few seconds."""
        self._stopping.set()
        self._store.end_waits()
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

    def name(self) -> None:
        """Name the logs of this machine by function, if that has changed."""
        keys = {
            function: f"{instance}.{location}"
            for function, instance, location in processes.serving(self._store.read)
            if self._launchers.get(location) is self._local
        }
        if keys != self._named:
            try:
                self._local.name_logs(keys)
                self._named = keys
            except OSError as error:
                _log.warning("cannot name logs by function: %s", error)

    def _is_kept(self, key: str) -> bool:
        subject, _, rest = key.partition(".")
        if subject == "keeper":
            return rest.isdecimal() and int(rest) in migrations.open_epochs(self._store.read)
        return instances.find(self._store.read, subject) is not None

    def _run(self) -> None:
        looked, seen = time.monotonic(), -1
        while not self._stopping.wait(_NAMES_S):
            if not self._store.wait(seen, _EVERY_S, _NAMING) and self._store.is_ending:
                return
            seen = self._store.last_event
            try:
                self.name()
                if time.monotonic() - looked >= _EVERY_S:
                    looked = time.monotonic()
                    self.look()
            except Exception:  # noqa: BLE001  an error must not let logs grow without limit
                _log.exception("cannot check the logs")
