"""Starts, queries and ends keepers, one for each migration with state to keep."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nfagent.control import Control
from nfagent.errors import ControlError, ControlUnreachableError, LaunchError
from nfagent.launch import Task
from nfagent.launch.local import LocalLauncher

_PROGRAM = Path(__file__).with_name("keeper.py")
_READY_S = 10.0
_POLL_S = 0.005
_ANSWER_S = 2.0
_GRACE_S = 1.0


class Kept:
    """Descriptors of a state and of its rings, with the answer to `prepare`; closed at the end of a ``with`` block."""

    def __init__(self, prepared: dict[str, Any], descriptors: list[int]) -> None:
        self.prepared = prepared
        self.descriptors = descriptors

    @property
    def is_whole(self) -> bool:
        """Return whether both are present; they cannot come from another machine."""
        return len(self.descriptors) == len(("state", "rings"))

    @property
    def pair(self) -> tuple[int, int]:
        """Return the descriptors of the state and of the rings."""
        return self.descriptors[0], self.descriptors[1]

    def close(self) -> None:
        """Close them."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Keepers:
    """The keepers of this machine.

    Args:
        launcher: for processes on this machine; a keeper has the key ``keeper.EPOCH``, and so outlives the agent.
    """

    def __init__(self, launcher: LocalLauncher) -> None:
        self._launcher = launcher
        self._begun: set[int] = set()  # epochs whose keeper has not been seen to end

    def keep(self, epoch: int, kept: Kept) -> None:
        """Hand these to the keeper.

        Raises:
            LaunchError, ControlError: this failed.
        """
        self._begun.add(epoch)
        key = key_of(epoch)
        path = self._launcher.control_path(key)
        command = (sys.executable, "-I", "-S", str(_PROGRAM), str(path))
        self._launcher.start(Task(key, str(epoch), (), command, "", {}))
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                Control(path).ask("put", timeout_s=_ANSWER_S, descriptors=kept.descriptors, note=kept.prepared)
                return
            except ControlUnreachableError as error:
                if time.monotonic() > deadline or self._launcher.find(key) is None:
                    raise LaunchError(f"the keeper of migration {epoch} does not answer: {error}") from error
            time.sleep(_POLL_S)

    def fetch(self, epoch: int) -> Kept | None:
        """Return what the keeper has; None: nothing, or the keeper is dead."""
        try:
            answer = Control(self._launcher.control_path(key_of(epoch))).exchange("get", timeout_s=_ANSWER_S)
        except ControlError:
            return None
        return Kept(answer.value.get("note") or {}, answer.descriptors)

    def end(self, epoch: int) -> None:
        """End the keeper, if it exists."""
        self._begun.add(epoch)
        with contextlib.suppress(LaunchError):  # `tidy` retries, as does the agent's next start
            self._launcher.stop(key_of(epoch), _GRACE_S)
            self._begun.discard(epoch)

    def expect(self, epoch: int) -> None:
        """Register a keeper that an earlier agent may have started."""
        self._begun.add(epoch)

    def tidy(self, open_epochs: Callable[[], Collection[int]]) -> None:
        """End the keepers of migrations that are no longer open."""
        if begun := set(self._begun):
            for epoch in begun.difference(open_epochs()):  # read afterwards: a row precedes its keeper
                self.end(epoch)


def key_of(epoch: int) -> str:
    """Return the key of a migration's keeper among this machine's processes."""
    return f"keeper.{epoch}"
