"""Receive buffers of the switches' ports.

Open vSwitch leaves its packet sockets at ``net.core.rmem_default``, usually 208 KiB, which loses more than half of what
a host sends at full speed; 8 MiB lose nothing. The setting applies to the whole machine, so it is raised only while
Open vSwitch opens its ports, and then restored.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lab import namespaces

WANTED_BYTES = 8 * 1024 * 1024
_SETTING = Path("/proc/sys/net/core/rmem_default")


class PortBuffers:
    """Raises the default while `raised` lasts, if this process may.

    Args:
        host_net: open file of the machine's initial network namespace, which has the setting; None: do not try.
    """

    def __init__(self, host_net: int | None) -> None:
        self._host_net = host_net
        self.note: str | None = None

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Give ports opened meanwhile large buffers; if that is refused, ``note`` says so."""
        if self._host_net is None:
            self._note("only root may raise net.core.rmem_default")
            yield
            return
        with _alone():
            before = self._swap(str(WANTED_BYTES))
            try:
                yield
            finally:
                if before is not None:
                    self._swap(before)

    def _swap(self, value: str) -> str | None:
        try:
            with namespaces.entered(fd=self._host_net):
                before = _SETTING.read_text().strip()
                if int(before) >= int(value) == WANTED_BYTES:
                    return None
                _SETTING.write_text(value)
                return before
        except OSError as error:
            self._note(f"raising net.core.rmem_default failed: {error.strerror}")
            return None

    def _note(self, why: str) -> None:
        try:
            size = f"{int(_SETTING.read_text()) // 1024} KiB"
        except (OSError, ValueError):
            size = "of the kernel's default size"
        self.note = (
            f"receive buffers of the switches' ports stay {size}: {why}. "
            "Bursts of more than some 20,000 full-size packets/s lose packets."
        )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock out other labs of this machine, or one would restore another's raised value."""
    lock = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
