"""An instance as a process on an interface, for programs that move its state by hand."""

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nfagent.control import Control
from nfagent.errors import ControlUnreachableError
from nfagent.migrate.switching import marker

MAC = bytes.fromhex("020202020202")
"""The address of each instance's interface."""
SECRET = "5e" * 32


def last_marker(epoch: int) -> bytes:
    """Build the marker of path 0."""
    return marker(MAC.hex(":"), SECRET, epoch, 0)


def hand_over(old: "Instance", new: "Instance", epoch: int, how: str) -> None:
    """Have two instances hand over; raise the error of the old one first, or else of the new one."""
    with ThreadPoolExecutor(1) as beside:
        # If the old one dies, the new one notices that only by the connection of a copy.
        limit: dict[str, Any] = {"timeout_ms": 1500} if how == "memfd" else {}
        taken = beside.submit(new.ask, "commit", epoch=epoch, **limit)
        old.ask("give", epoch=epoch)
        taken.result()


class Instance:
    """A process `nf run` on an interface; the configuration is that of its kind."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        name: str,
        port: str,
        config: dict[str, Any],
        *options: str,
        fds: tuple[int, ...] = (),
    ) -> None:
        path, control = directory / "config.json", directory / f"{name}.sock"
        path.write_text(json.dumps(config))
        control.unlink(missing_ok=True)
        where = ["--config", str(path), "--port", port, "--control", str(control)]
        log = (directory / f"{name}.log").open("wb")
        self.process = subprocess.Popen([*command, *where, *options], pass_fds=fds, stderr=log)
        log.close()
        self._control = Control(control)
        end = time.monotonic() + 30
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((directory / f"{name}.log").read_text()) from None
            time.sleep(0.002)

    def _answers(self) -> bool:
        """Tell whether the process listens; the socket's file appears before that."""
        try:
            self.ask("status")
        except ControlUnreachableError:
            return False
        return True

    def ask(self, verb: str, *, send: Sequence[int] = (), **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        answer = self._control.exchange(verb, timeout_s=30, descriptors=send, **arguments)
        return answer.value, answer.descriptors

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
