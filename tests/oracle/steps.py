"""The parts of an oracle run: a start and steps, as plain data for files and `replay`."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lab.spec import Meters
from server.names import HOME, LinkType


@dataclass(frozen=True)
class Send:
    """Messages that a controller sends at once; ``about`` describes them for readers."""

    messages: tuple[str, ...]
    about: str = ""
    controller: int = 0


@dataclass(frozen=True)
class Bulk:
    """Rules with enough actions that their statistics need several messages."""

    rules: int
    actions: int


@dataclass(frozen=True)
class Timed:
    """Rules with timeouts of a second or two; frames keep some alive for a while; in the end all expire."""

    messages: tuple[str, ...]
    port: int
    frame: str


@dataclass(frozen=True)
class PortMod:
    """A port-mod: the port's MAC address, which it must name, differs between the worlds.

    ``properties``: those of OpenFlow 1.4 and later; None: the one that changes nothing.
    """

    port: int
    config: int
    mask: int
    right_address: bool = True
    xid: int = 0
    properties: str | None = None


@dataclass(frozen=True)
class Inject:
    """Frames that a host sends, one after the other."""

    port: int
    frames: tuple[str, ...]
    about: str = ""


@dataclass(frozen=True)
class Move:
    """A port, or all (0), move to another switch (by index, modulo their number): on one bridge, nothing happens."""

    port: int
    switch: int


@dataclass(frozen=True)
class Interface:
    """A host takes its interfaces down or up."""

    port: int
    up: bool


@dataclass(frozen=True)
class Execute:
    """A port's pipeline moves to another switch (by index, modulo their number): on one bridge, nothing happens."""

    port: int
    switch: int


@dataclass(frozen=True)
class Reconnect:
    """A controller disconnects if it is connected, and connects over a version of OpenFlow."""

    controller: int = 0
    version: int = 4


@dataclass(frozen=True)
class Resume:
    """A controller continues the packets that the last frames left paused."""

    controller: int
    xid: int


@dataclass(frozen=True)
class GoHome:
    """Everything is deleted, and gathered ports go home: shared state is lost. On one bridge, it is flushed."""


@dataclass(frozen=True)
class RestartOneswitchd:
    """oneswitchd restarts: on one bridge, the controllers lose their connections."""


@dataclass(frozen=True)
class RestartSwitch:
    """An ovs-vswitchd is killed and restarted: on one bridge, nothing happens."""

    switch: int


@dataclass(frozen=True)
class BreakLink:
    """The PCIe link of an sNIC is cut, messages are sent, it is mended: on one bridge, the hosts behind it go away.

    Without an sNIC, the messages are all.
    """

    switch: int
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """All readable state is compared."""


Step = (
    Send
    | Bulk
    | Timed
    | PortMod
    | Inject
    | Move
    | Execute
    | Interface
    | Reconnect
    | Resume
    | GoHome
    | RestartOneswitchd
    | RestartSwitch
    | BreakLink
    | Check
)
_KINDS: dict[str, Callable[..., Step]] = {
    each.__name__: each
    for each in (
        *(Send, Bulk, Timed, PortMod, Inject, Move, Execute, Interface),
        *(Reconnect, Resume, GoHome, RestartOneswitchd, RestartSwitch, BreakLink, Check),
    )
}


@dataclass
class Script:
    """A repeatable run on a server, whose options are those of `Comparison`."""

    switches: int
    steps: list[Step] = field(default_factory=list)
    note: str = ""
    executor: str = HOME
    stateful: bool = False
    meters: Meters = "per-executor"
    links: tuple[LinkType, ...] = ()

    @property
    def server(self) -> str:
        """Return a name of the server, for tests and files."""
        more = "-stateful" * self.stateful + "-meters" * (self.meters == "gather")
        return f"{self.switches}-switches-{self.executor}{more}{''.join(f'-{link}' for link in self.links)}"

    def write(self, path: Path) -> None:
        """Write the script as JSON, a step per line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"step": type(step).__name__, **dataclasses.asdict(step)}) for step in self.steps]
        head = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "steps"}
        path.write_text("\n".join([json.dumps(head), *lines]) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote.

        Raises:
            OSError: the file cannot be read.
            ValueError, KeyError, TypeError: it is not a script.
        """
        head, *lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        steps = [_step(line) for line in lines]
        return cls(**head | {"steps": steps, "links": tuple(head.get("links", ()))})


def _step(data: dict[str, Any]) -> Step:
    kind = _KINDS[data.pop("step")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})
