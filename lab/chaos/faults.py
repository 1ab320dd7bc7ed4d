"""Faults of a server's parts, drawn from a seed, and what a person does to mend them."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lab import breaking
from lab.chaos.surroundings import CLOCK, DISK, Surroundings
from lab.chaos.watch import CHANNELS, SHOWN_S
from lab.demo.balancer import NAME
from lab.demo.site import SNIC, Site
from lab.errors import ControlError
from lab.spec import HYPERVISOR

_SHORTEST_S, _LONGEST_S = 0.2, 6.0
_LONG_S, _LONG_SHARE = 25.0, 0.01
"""A few last until a person must have been told what to do."""
_SIZES, _MOVE_SHARE = (1, 1, 2, 3), 0.3
_STALLS = 4
_OFF_S = 3600


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: ``kill``, ``hang``, ``power``, ``link``, ``full``, ``slow`` or ``jump``.
        part: as `lab.breaking` names it; the sNIC of ``power`` and ``link``; ``disk``; where the clock jumps to.
        hold_s: until a person mends what does not mend itself.
    """

    kind: str
    part: str
    hold_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.part}"

    @property
    def spot(self) -> str:
        """Return what only one fault at a time may have: a switch with its database, power and link, or a program."""
        return CLOCK if self.kind == "jump" else self.part.partition("/")[0]

    @property
    def is_outage(self) -> bool:
        """Tell whether a part of the server is out of service meanwhile, whether or not that costs requests."""
        return self.kind not in ("slow", "jump") and self.part != NAME


@dataclass(frozen=True)
class Round:
    """Faults that happen together, of parts that are independent.

    Attributes:
        moves: the load balancer is asked to move just before.
    """

    faults: tuple[Fault, ...]
    moves: bool = False

    def __str__(self) -> str:
        return " + ".join([*(["move"] if self.moves else []), *map(str, self.faults)])

    @property
    def lasting(self) -> list[Fault]:
        """Return the outages of parts that last so long that they have to be shown."""
        return [each for each in self.faults if each.is_outage and each.hold_s > SHOWN_S]

    @property
    def channels(self) -> list[str]:
        """Return the channels that have to show an outage: no event can be written to a disk that takes none."""
        return [each for each in CHANNELS if each != "event" or DISK not in [fault.spot for fault in self.faults]]


Kind = tuple[str, str]

_DATABASES = (f"{HYPERVISOR}/ovsdb-server", f"{SNIC}/ovsdb-server")
_DAEMONS = (HYPERVISOR, SNIC, "oneswitchd", "nfagent", NAME)
KINDS: tuple[Kind, ...] = (
    *(("kill", part) for part in (*_DAEMONS, *_DATABASES)),
    *(("hang", part) for part in (*_DAEMONS, *_DATABASES)),
    ("power", SNIC),
    ("link", SNIC),
    ("full", DISK),
    ("slow", DISK),
    ("jump", "ahead"),
    ("jump", "back"),
)


def draw(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Round]:
    """Yield rounds without end; the same for the same seed and kinds."""
    chance = random.Random(seed)
    while True:
        size, faults = chance.choice(_SIZES), list[Fault]()
        while len(faults) < size:
            kind, part = chance.choice(kinds)
            hold_s = _LONG_S if chance.random() < _LONG_SHARE else round(chance.uniform(_SHORTEST_S, _LONGEST_S), 2)
            fault = Fault(kind, part, hold_s)
            if fault.spot not in [each.spot for each in faults]:
                faults.append(fault)
        yield Round(tuple(faults), chance.random() < _MOVE_SHARE)


def available(surroundings: Surroundings) -> list[Kind]:
    """Return the kinds that can be had."""
    without = {spot for spot, found in ((DISK, surroundings.disk), (CLOCK, surroundings.clock)) if found is None}
    return [each for each in KINDS if Fault(*each, 0.0).spot not in without]


def strike(site: Site, surroundings: Surroundings, fault: Fault) -> Callable[[], None]:
    """Let a fault happen; return what mends it.

    Raises:
        ControlError: the part is not there.
    """
    if fault.spot == DISK:
        return _strike_disk(surroundings, fault)
    if fault.spot == CLOCK:
        return _jump(surroundings, _OFF_S if fault.part == "ahead" else -_OFF_S)
    if fault.kind == "power":
        switch = site.lab.switch(fault.part)
        switch.power_off()
        return switch.power_on
    if fault.kind == "link":
        site.lab.unlink(fault.part)
        return lambda: site.lab.relink(fault.part)
    if fault.part == "nfagent":
        return _struck(fault, site.agent.pid, site.restart_agent)
    if fault.part == "oneswitchd":
        return _struck(fault, site.oneswitchd.pid, site.restart_oneswitchd)
    (breaking.kill if fault.kind == "kill" else breaking.stop)(site.lab, fault.part)
    if fault.part == NAME:
        return _nothing  # nfagent starts it again
    return lambda: _start(site, fault.part)


def _strike_disk(surroundings: Surroundings, fault: Fault) -> Callable[[], None]:
    disk = surroundings.disk
    if disk is None:
        raise ControlError("this lab has no disk of its own; faults of disks need root and loop devices")
    if fault.kind == "full":
        disk.fill()
        return disk.empty
    disk.stall(fault.hold_s / _STALLS)
    return disk.flow


def _jump(surroundings: Surroundings, offset_s: int) -> Callable[[], None]:
    clock = surroundings.clock
    if clock is None:
        raise ControlError("this lab has no clock of its own; faults of clocks need a C compiler, cc")
    clock.jump(offset_s)
    return lambda: clock.jump(0)


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
