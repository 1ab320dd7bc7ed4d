"""Which locations are down: their switch, or the PCIe link to it."""

import time
from collections.abc import Callable

from unoctl.errors import UnoctlError
from unoctl.model import Status

STEADY_S = 10.0
"""A location that was down counts as down until it has been up for so long."""


class Outages:
    """Asks oneswitchd, and remembers.

    Args:
        status: of oneswitchd; raises `UnoctlError`.
        clock: seconds of a steady clock.
    """

    def __init__(self, status: Callable[[], Status], clock: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._clock = clock
        self._last_down: dict[str, float] = {}

    def __call__(self) -> frozenset[str] | None:
        """Names of the switches; None: oneswitchd does not answer, and nothing could be moved."""
        try:
            status = self._status()
        except UnoctlError:
            return None
        now = self._clock()
        for switch in status.switches:
            linked = switch.link is None or switch.link.state == "up"
            if not (linked and switch.virt.state == switch.edge.state == "up"):
                self._last_down[switch.name] = now
        self._last_down = {name: at for name, at in self._last_down.items() if now - at < STEADY_S}
        return frozenset(self._last_down)
