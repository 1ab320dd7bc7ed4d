"""Finds out which locations lack what a function needs: files that its configuration names, programs of its kind.

The kind's own program examines the configuration where the function would run (`Kind.check`). If a file or a program
is missing there, the location is excluded from placement, with that reason. A location that does not answer is not
excluded: other parts watch for that.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nfagent.catalog import Catalog
from nfagent.checking import lacking
from nfagent.config import AgentConfig
from nfagent.errors import DiskFullError, LaunchError
from nfagent.launch import Launcher
from nfagent.model import Instance, Kind
from nfagent.store import Store, instances
from nfagent.store.instances import Filter

_log = logging.getLogger(__name__)

_PERIOD_S = 5.0
_LACKING_S = 10.0  # until a location that lacks something is examined again: an administrator may just install it
_FIT_S = 300.0
_STOP_S = 5.0


@dataclass(frozen=True)
class _Need:
    """The subject of an examination: equal functions are examined once."""

    kind: str
    ports: int
    config: str
    location: str


class LocationFitness:
    """See `nfagent.protocols.Fitness`. Examines all instances' locations periodically, from `start` to `stop`.

    Args:
        store: has the instances; gets the events ``placement.unfit`` and ``placement.fit``.
        catalog: of kinds.
        config: has the slots, in which functions run.
        launchers: by location.
        is_cut_off: whether a location does not answer now.
        clock: seconds of a steady clock.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        config: AgentConfig,
        launchers: Mapping[str, Launcher],
        is_cut_off: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._catalog, self._config = store, catalog, config
        self._launchers, self._is_cut_off, self._clock = launchers, is_cut_off, clock
        self._found: dict[_Need, tuple[float, str | None]] = {}  # when, and what is lacking
        self._told: dict[tuple[str, str], str] = {}  # by instance and location
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="examine locations", daemon=True)

    def start(self) -> None:
        """Start examining."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; an examination in progress gets a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def lacks(self, instance: Instance, location: str) -> str | None:
        _, why = self._found.get(_need(instance.kind, instance.config, len(instance.ports), location), (0.0, None))
        return why

    def look(self, kind: Kind, config: Mapping[str, Any], ports: int, location: str) -> str | None:
        need = _need(kind.name, config, ports, location)
        if not kind.check or self._is_cut_off(location):
            return None
        try:
            examined = self._launchers[location].examine(
                self._enter(location, ports), kind.check_of(ports), need.config
            )
        except LaunchError as error:
            _log.info("cannot find out whether %s has what a %s needs: %s", location, kind.name, error)
            return self._found.get(need, (0.0, None))[1]
        why = lacking(examined, location)
        self._found = self._found | {need: (self._clock(), why)}
        return why

    def _enter(self, location: str, ports: int) -> tuple[str, ...]:
        """Return how a function with this number of ports enters its slot there."""
        slots = (each.slot() for each in self._config.find_location(location).slot)
        return next((slot.enter for slot in slots if ports and len(slot.wires) >= ports), ())

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            try:
                self.examine()
            except Exception:  # noqa: BLE001  one fault must not end it
                _log.exception("cannot examine the locations")

    def examine(self) -> None:
        """Examine what is due, forget what no instance needs, and tell what has changed."""
        present = [view.instance for view in instances.views(self._store.read, Filter()) if view.instance.present]
        needs: set[_Need] = set()
        for instance in present:
            kind = self._catalog.kinds.get(instance.kind)
            for location in self._launchers if kind is not None and kind.check else ():
                need = _need(instance.kind, instance.config, len(instance.ports), location)
                needs.add(need)
                if kind is not None and self._is_due(need) and not self._stopping.is_set():
                    self.look(kind, instance.config, len(instance.ports), location)
        self._found = {need: found for need, found in self._found.items() if need in needs}
        self._tell(present)

    def _is_due(self, need: _Need) -> bool:
        if need not in self._found:
            return True
        at, why = self._found[need]
        return self._clock() - at >= (_FIT_S if why is None else _LACKING_S)

    def _tell(self, present: list[Instance]) -> None:
        now = {
            (instance.id, location): why
            for instance in present
            for location in self._launchers
            if (why := self.lacks(instance, location)) is not None
        }
        if now == self._told:
            return
        ids = {instance.id for instance in present}
        try:
            with self._store.change() as change:
                for (instance, location), why in now.items() - self._told.items():
                    told = {"instance": instance, "location": location, "reason": why}
                    change.event("placement.unfit", "placement", None, told)
                for instance, location in self._told.keys() - now.keys():
                    if instance in ids:
                        told = {"instance": instance, "location": location}
                        change.event("placement.fit", "placement", None, told)
        except DiskFullError:
            return  # told once there is room
        self._told = now


def _need(kind: str, config: Mapping[str, Any], ports: int, location: str) -> _Need:
    return _Need(kind, ports, json.dumps(config, sort_keys=True), location)
