"""Follows a traced packet through network functions, as far as a trace can know what they do.

A function with two ports is taken to send a packet out of the other one. Its bytes stay the same for kinds that only
look at packets or drop them; for others, such as a gateway that encrypts, the trace goes on with the bytes that went
in, and says so. A function with one port sends packets where it decides: there the trace ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server.errors import ToolError
from server.oneswitchd.answers import VirtualPort
from unoctl.trace.model import Trace, TraceError, trace_json
from unoctl.trace.tracer import Tracer

UNCHANGING = ("assets", "firewall", "forward", "limiter")
"""Kinds whose packets leave as they came, or not at all."""

MAX_FUNCTIONS = 64


@dataclass(frozen=True)
class Function:
    """A network function: its kind, and the numbers of its virtual ports."""

    name: str
    kind: str
    ports: tuple[int, ...]

    @classmethod
    def of(cls, instance: Mapping[str, Any]) -> "Function":
        """Convert from nfagent's answer."""
        return cls(instance["name"], instance["kind"], tuple(port["number"] for port in instance["ports"]))


@dataclass(frozen=True)
class Passage:
    """A packet that enters a function.

    Attributes:
        entered, left: virtual ports; None: it is not known where the packet leaves.
        text: what is known of the packet, in words.
        trace: from the port where it leaves; None: it is not followed.
    """

    function: Function
    entered: int
    left: int | None
    text: str
    trace: Trace | None

    @property
    def complete(self) -> bool:
        """Tell whether the packet is known where the trace goes on."""
        return self.trace is not None and self.function.kind in UNCHANGING and self.trace.complete

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        known = {"function": self.function.name, "kind": self.function.kind, "text": self.text}
        trace = trace_json(self.trace) if self.trace else None
        return known | {"entered": self.entered, "left": self.left, "trace": trace}


def follow(tracer: Tracer, first: Trace, functions: Sequence[Function], ports: Sequence[VirtualPort]) -> list[Passage]:
    """Return the functions that a traced packet enters, in order, with what comes behind each."""
    owners = {number: function for function in functions for number in function.ports}
    by_number = {port.number: port for port in ports}
    found: list[Passage] = []
    waiting, seen = list(_entered(first)), set[tuple[int, bytes]]()
    while waiting and len(found) < MAX_FUNCTIONS:
        number, data = waiting.pop(0)
        function = owners.get(number)
        if function is None or (number, data) in seen:
            continue
        seen.add((number, data))
        passage = _passed(tracer, function, number, data, by_number)
        found.append(passage)
        if passage.trace is not None:
            waiting += _entered(passage.trace)
    return found


def _entered(trace: Trace) -> Iterator[tuple[int, bytes]]:
    for outcome in trace.exits:
        if outcome.details["port"] is not None:
            yield outcome.details["port"], outcome.data


def _passed(tracer: Tracer, function: Function, number: int, data: bytes, ports: Mapping[int, VirtualPort]) -> Passage:
    who = f"{function.kind} {function.name}"
    others = [each for each in function.ports if each != number]
    if len(others) != 1:
        return Passage(function, number, None, f"enters {who}, which decides where it goes: not followed", None)
    left = others[0]
    if left not in ports:
        return Passage(function, number, left, f"enters {who}, whose other port is not there: not followed", None)
    text = f"passes {who}, if it lets it through"
    if function.kind not in UNCHANGING:
        text = f"passes {who}, which may change it: followed as if it did not"
    try:
        return Passage(function, number, left, text, tracer.trace(ports[left], data))
    except (ToolError, TraceError) as error:
        return Passage(function, number, left, f"{text}; not followed: {error}", None)
