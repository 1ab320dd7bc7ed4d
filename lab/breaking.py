"""Breaking parts of a running lab by hand: what ``uno-lab kill``, ``stop``, ``start`` and ``power`` do.

A part is a switch's ovs-vswitchd (``snic0``) or database (``snic0/ovsdb-server``), ``oneswitchd``, ``nfagent``, or a
network function by its name.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import ControlError
from lab.ovs import DAEMONS
from lab.server import Lab
from server.errors import ServerError
from server.processes import PROC
from unoctl.nf.client import NfClient
from unoctl.nf.finding import address

_VSWITCHD = "ovs-vswitchd"
_PROGRAMS = ("oneswitchd", "nfagent")


@dataclass(frozen=True)
class Part:
    """A process of a lab.

    Attributes:
        name: as people call it.
        pid: None: it is not running.
        switch, daemon: of a switch's daemon, which the lab itself starts.
    """

    name: str
    pid: int | None
    switch: str | None = None
    daemon: str | None = None


def kill(lab: Lab, named: str) -> str:
    """End a part at once; returns what happened, and what brings it back.

    Raises:
        ControlError: it is unknown or not running.
    """
    part = _find(lab, named)
    if part.switch is not None and part.daemon is not None:
        lab.switch(part.switch).kill(part.daemon)
        return f"{part.name} was killed; bring it back: uno-lab start {named}"
    _signal(part, signal.SIGKILL)
    back = "start it again" if named in _PROGRAMS else "nfagent starts it again"
    return f"{part.name} (process {part.pid}) was killed; {back}"


def stop(lab: Lab, named: str) -> str:
    """Let a part hang: it exists, but does nothing.

    Raises:
        ControlError: it is unknown or not running.
    """
    part = _find(lab, named)
    _signal(part, signal.SIGSTOP)
    return f"{part.name} (process {part.pid}) hangs; let it go on: uno-lab start {named}"


def start(lab: Lab, named: str) -> str:
    """Let a part go on that hangs, or start a switch's daemon that was killed.

    Raises:
        ControlError: it is unknown, or not running and not the lab's to start.
    """
    part = _find(lab, named)
    if part.pid is None and part.switch is not None and part.daemon is not None:
        lab.switch(part.switch).start(part.daemon)
        return f"{part.name} runs again"
    _signal(part, signal.SIGCONT)
    return f"{part.name} (process {part.pid}) goes on"


def is_running(lab: Lab, program: str) -> bool:
    """Tell whether oneswitchd or nfagent of a lab runs."""
    return next(_running(program, lab.directory), None) is not None


def _find(lab: Lab, named: str) -> Part:
    switch, _, daemon = named.partition("/")
    for each in lab.state.switches:
        if each.name == switch:
            daemon = daemon or _VSWITCHD
            if daemon not in DAEMONS:
                raise ControlError(f"unknown daemon {daemon!r} of {switch}; expected one of {', '.join(DAEMONS)}")
            return Part(f"{daemon} of {switch}", each.processes.get(daemon), switch, daemon)
    if named in _PROGRAMS:
        return Part(named, next(_running(named, lab.directory), None))
    return Part(named, _function(lab, named))


def _function(lab: Lab, named: str) -> int | None:
    known = ", ".join(["a switch", *_PROGRAMS, "a network function"])
    try:
        with NfClient(address(None, lab.name, os.environ)) as agent:
            placement = agent.instance(named)["placement"]
    except ServerError as error:
        raise ControlError(f"unknown part {named!r} of lab {lab.name}; expected {known} ({error})") from error
    return (placement or {}).get("pid")


def _running(program: str, directory: Path) -> Iterator[int]:
    """Find processes of a program that use the lab's files."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        # The first words of a script are its interpreter, and perhaps -m.
        programs = [Path(os.fsdecode(word)).name for word in words[:3]]
        if program in programs and any(os.fsencode(f"{directory}/") in text for text in (*words, environment)):
            yield int(entry.name)


def _signal(part: Part, number: signal.Signals) -> None:
    try:
        if part.pid is None:
            raise ProcessLookupError
        os.kill(part.pid, number)
    except ProcessLookupError:
        raise ControlError(f"{part.name} is not running") from None
    except PermissionError as error:
        raise ControlError(f"{part.name} (process {part.pid}) belongs to another user") from error
