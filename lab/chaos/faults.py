"""Faults of a server's parts, drawn from a seed, and what a person does to mend them."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab import breaking
from lab.demo.balancer import NAME
from lab.demo.site import SNIC, Site
from lab.errors import ControlError
from lab.spec import HYPERVISOR

_SHORTEST_S, _LONGEST_S = 0.2, 6.0


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: ``kill``, ``hang``, ``power`` or ``link``.
        part: as `lab.breaking` names it; the sNIC of ``power`` and ``link``.
        hold_s: until a person mends what does not mend itself.
    """

    kind: str
    part: str
    hold_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.part}"


_DATABASES = (f"{HYPERVISOR}/ovsdb-server", f"{SNIC}/ovsdb-server")
_DAEMONS = (HYPERVISOR, SNIC, "oneswitchd", "nfagent", NAME)
KINDS: tuple[tuple[str, str], ...] = (
    *(("kill", part) for part in (*_DAEMONS, *_DATABASES)),
    *(("hang", part) for part in _DAEMONS),
    ("power", SNIC),
    ("link", SNIC),
)


def draw(seed: int) -> Iterator[Fault]:
    """Yield faults without end; the same for the same seed."""
    chance = random.Random(seed)
    while True:
        kind, part = chance.choice(KINDS)
        yield Fault(kind, part, round(chance.uniform(_SHORTEST_S, _LONGEST_S), 2))


def strike(site: Site, fault: Fault) -> Callable[[], None]:
    """Let a fault happen; return what mends it.

    Raises:
        ControlError: the part is not there.
    """
    switch = site.lab.switch(SNIC)
    if fault.kind == "power":
        switch.power_off()
        return switch.power_on
    if fault.kind == "link":
        site.lab.unlink(SNIC)
        return lambda: site.lab.relink(SNIC)
    if fault.part == "nfagent":
        return _struck(fault, site.agent.pid, site.restart_agent)
    if fault.part == "oneswitchd":
        return _struck(fault, site.oneswitchd.pid, site.restart_oneswitchd)
    if fault.part == NAME:
        # nfagent starts it again; a person does nothing.
        (breaking.kill if fault.kind == "kill" else breaking.stop)(site.lab, fault.part)
        return _nothing
    if fault.kind == "kill":
        breaking.kill(site.lab, fault.part)
    else:
        breaking.stop(site.lab, fault.part)
    return lambda: _start(site, fault.part)


def _struck(fault: Fault, pid: int, restart: Callable[[], None]) -> Callable[[], None]:
    if fault.kind == "kill":
        os.kill(pid, signal.SIGKILL)
        return restart
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def _start(site: Site, part: str) -> None:
    # A switch without power gets its daemons back with the power.
    with contextlib.suppress(ControlError):
        breaking.start(site.lab, part)


def _nothing() -> None:
    """Mend nothing."""
