"""Reads what the functions of kind ``assets`` have found, wherever they run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfagent.control import Control
from nfagent.errors import ConflictError, ControlError, LaunchError, UnavailableError
from nfagent.model import Running, View

KIND = "assets"


@dataclass(frozen=True)
class AssetReader:
    """Asks the processes of instances.

    Args:
        control_path: returns the path of a process's control socket; raises `LaunchError`.
        is_cut_off: whether a location is disconnected now.
    """

    control_path: Callable[[Running], Path]
    is_cut_off: Callable[[str], bool]

    def hosts(self, view: View, start: int, limit: int) -> dict[str, Any]:
        """Return hosts with their services and operating systems, and in ``next`` where the next page starts.

        Raises:
            ConflictError: the instance is of another kind.
            UnavailableError: it does not answer.
        """
        return self._ask(view, "hosts", **{"from": start, "limit": limit})

    def lines(self, view: View, after: int, limit: int) -> dict[str, Any]:
        """Return the lines after a number, and in ``last`` how many there ever were.

        Raises:
            ConflictError: the instance is of another kind.
            UnavailableError: it does not answer.
        """
        return self._ask(view, "history", after=after, limit=limit)

    def _ask(self, view: View, verb: str, **arguments: Any) -> dict[str, Any]:
        if view.instance.kind != KIND:
            detail = f"{view.instance.name} is of kind {view.instance.kind!r}; only those of kind {KIND!r} know assets"
            raise ConflictError("kind-unfit", detail)
        running = view.running
        if running is None or running.phase == "starting" or self.is_cut_off(running.location):
            raise UnavailableError("assets-unavailable", f"{view.instance.name} does not run now, or cannot be reached")
        try:
            return Control(self.control_path(running)).ask(f"{KIND}.{verb}", **arguments)
        except (ControlError, LaunchError) as error:
            detail = f"{view.instance.name} does not answer now: it starts, moves or hangs"
            raise UnavailableError("assets-unavailable", detail) from error
