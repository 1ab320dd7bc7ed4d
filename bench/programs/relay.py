"""relay.c: a process that only passes bytes, so it costs what any process between a controller and a switch must."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.control_plane import Daemon


class Relay:
    """A relay before one or two Open vSwitch; see relay.c.

    Args:
        targets: management sockets of bridges, each ``unix:PATH``.
    """

    def __init__(self, *targets: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="relay-")
        place = Path(self._directory.name)
        program = str(place / "relay")
        subprocess.run(["cc", "-O2", "-o", program, str(Path(__file__).with_name("relay.c"))], check=True)
        paths = [target.removeprefix("unix:") for target in targets]
        self._daemon = Daemon("relay", [program, str(place / "sock"), *paths], place)
        self.target = f"unix:{place}/sock"
        self._daemon.wait_for_line("^ready$")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._daemon.stop()
        self._directory.cleanup()
