"""The wall clock of nfagent and oneswitchd, which can jump, as when it was wrong and is set.

A preloaded library (clock.c) adds the seconds in a file to CLOCK_REALTIME. CLOCK_MONOTONIC, which no jump changes,
stays. (libfaketime 0.9.10 would break sleeps: its clock_nanosleep refuses absolute times.) Network functions keep the
machine's clock: they do not get the agent's environment.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

from lab.errors import StartError

_SOURCE = Path(__file__).with_name("clock.c")
_OFFSET = struct.Struct("=q")


def missing() -> str | None:
    """Return what this machine lacks for it; None: nothing."""
    return None if shutil.which("cc") else "a C compiler"


class Clock:
    """The clock.

    Args:
        directory: for the library and the file of the offset.

    Raises:
        StartError: the library cannot be compiled.
    """

    def __init__(self, directory: Path) -> None:
        self._library = directory / "clock.so"
        self._file = directory / "clock"
        self._file.write_bytes(_OFFSET.pack(0))
        command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartError(f"{' '.join(command)}: {done.stderr.strip()}")

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a process with this clock."""
        return {"LD_PRELOAD": str(self._library), "UNO_LAB_CLOCK": str(self._file)}

    def jump(self, offset_s: int) -> None:
        """Let it be off by that much."""
        with self._file.open("r+b") as file:
            os.pwrite(file.fileno(), _OFFSET.pack(offset_s), 0)
