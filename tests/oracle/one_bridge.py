"""One plain Open vSwitch bridge: the reference."""

import struct
import time
from collections.abc import Callable
from pathlib import Path

from lab.errors import StartError
from lab.spec import LabSpec
from tests.oracle import openflow as of
from tests.oracle.world import NOTICE_S, POLL_S, World


class OneBridge(World):
    """One plain Open vSwitch bridge: the reference.

    Args:
        spec: of its lab.
        behind: which ports a broken PCIe link would cut off.
        stateful: rules may keep state that all ports share.
    """

    def __init__(self, spec: LabSpec, behind: Callable[[int], list[int]], *, stateful: bool = False) -> None:
        self._behind = behind
        self._cut_off: set[int] = set()
        super().__init__(spec, stateful=stateful)

    def break_link(self, switch: int) -> None:
        up = {port for port, _, state in self._port_states() if not state & of.LINK_DOWN}
        self._cut_off = up & set(self._behind(switch))
        for port in self._cut_off:
            self._set_admin_state(port, up=False)

    def mend_link(self, switch: int) -> None:
        for port in self._cut_off:
            self._set_admin_state(port, up=True)
        # Open vSwitch reports a port as up first, and as live a moment later.
        deadline = time.monotonic() + NOTICE_S
        while self._cut_off - {port for port, config, state in self._port_states() if config & 1 or state & of.LIVE}:
            if time.monotonic() > deadline:
                raise StartError(f"not all of ports {sorted(self._cut_off)} are live after {NOTICE_S:g} s")
            time.sleep(POLL_S)

    def _port_states(self) -> list[tuple[int, int, int]]:
        return [struct.unpack_from("!I28xII", data) for data in self._port_descriptions()]

    def _path(self) -> Path:
        return Path(self.lab.state.switches[0].virt.removeprefix("unix:"))
