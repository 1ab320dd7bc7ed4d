"""A step in both worlds, and whether they did the same."""

from pathlib import Path
from types import TracebackType
from typing import Self

from lab.errors import LabError
from tests.oracle import observation
from tests.oracle import openflow as of
from tests.oracle.channel import ChannelError
from tests.oracle.observation import Observation
from tests.oracle.steps import Check, Inject, PortMod, Script, Send, Step
from tests.oracle.world import OneBridge, OneSwitch, World, clear_messages, server
from unoctl.errors import UnoctlError

_TURN_S, _LATE_TURNS = 0.05, 60
_NO_RECV = 4
_TAGS = (b"\x81\x00", b"\x88\xa8")


class DifferenceError(AssertionError):
    """The two worlds did not do the same."""


class Comparison:
    """oneswitchd over several switches, one bridge, and a run that both go through.

    Args:
        switches: how many oneswitchd has.
        binary: of oneswitchd; None finds the installed one.
    """

    def __init__(self, switches: int, binary: Path | None = None) -> None:
        self._binary = binary
        self.script = Script(switches)
        self._start()
        self.steps = 0
        self._deaf: set[int] = set()
        self._counters_differ = False

    def _start(self) -> None:
        self.ours = OneSwitch(self.script.switches, self._binary)
        self.reference = OneBridge(server(self.script.switches).reference())
        self._broken = False

    def close(self) -> None:
        """End both."""
        self.ours.close()
        self.reference.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def reset(self) -> None:
        """Begin a new run."""
        self.script = Script(self.script.switches)
        if self._broken:
            self.close()
            self._start()
        self._deaf.clear()
        self._counters_differ = False
        for world in (self.ours, self.reference):
            world.reset()

    def play(self, step: Step) -> None:
        """Do a step in both worlds.

        Raises:
            DifferenceError: they did not do the same.
        """
        self.script.steps.append(step)
        self.steps += 1
        # The reference first: what it can do and oneswitchd cannot is found even if oneswitchd hangs.
        expected, seen = self._apply(self.reference, step), self._apply(self.ours, step)
        self._await(seen, expected)
        self._note(step)
        if self._counters_differ:
            seen, expected = seen.without_counters(), expected.without_counters()
        differences = seen.differences(expected)
        if differences and (self._given_up(step) or self._reparsed(expected)):
            self._counters_differ = True
        elif differences:
            raise DifferenceError(f"step {len(self.script.steps)}, {_shown(step)}\n" + "\n".join(differences))

    def _apply(self, world: World, step: Step) -> Observation:
        try:
            return world.apply(step)
        except (ChannelError, LabError, UnoctlError) as error:
            self._broken = True
            who = "oneswitchd" if world is self.ours else "the one switch"
            raise DifferenceError(f"step {len(self.script.steps)}, {_shown(step)}\n{who}: {error}") from error

    def finish(self) -> None:
        """The end of a run: compare everything, then remove everything and compare what that says."""
        self.play(Check())
        self.play(Send((clear_messages(0x7FFFFFFF).hex(),), "delete all"))
        self.play(Check())

    def run(self, script: Script) -> None:
        """Reset, and play a script to its end."""
        self.reset()
        for step in script.steps:
            self.play(step)

    def _note(self, step: Step) -> None:
        """Known difference: Open vSwitch counts what a port with NO_RECV drops at the rule that would have matched."""
        if isinstance(step, PortMod) and step.right_address and step.mask & _NO_RECV:
            (self._deaf.add if step.config & _NO_RECV else self._deaf.discard)(step.port)
        self._counters_differ |= isinstance(step, Inject) and step.port in self._deaf

    def _given_up(self, step: Step) -> bool:
        """Known difference: of a packet that it gives up on, Open vSwitch drops all but what has left the bridge."""
        if not isinstance(step, Inject):
            return False
        return any(self.reference.translation_fails(step.port, bytes.fromhex(frame)) for frame in step.frames)

    def _reparsed(self, expected: Observation) -> bool:
        """Known difference: what a select group has recirculated is not parsed anew where it enters a PCIe link."""
        sent = (bytes.fromhex(m) for s in self.script.steps if isinstance(s, Send) for m in s.messages)
        selects = any(m[1] == of.GROUP_MOD and m[10] == of.SELECT_GROUP for m in sent)
        frames = (bytes.fromhex(frame) for some in expected.frames.values() for frame in some)
        return selects and any(frame[12:14] in _TAGS and frame[16:18] in _TAGS for frame in frames)

    def _await(self, seen: Observation, expected: Observation) -> None:
        """Give what may come late the time to come.

        Open vSwitch reports a removed rule when nothing refers to it any more: no cached flow, no thread that has not
        slept since.
        """
        for _ in range(_LATE_TURNS):
            missing = _asynchronous(expected) - _asynchronous(seen)
            if missing == 0 and expected.removed == seen.removed:
                return
            for world in (self.ours, self.reference):
                world.wires.purge()
            late, observation = (self.ours, seen) if missing > 0 else (self.reference, expected)
            late.channel.await_asynchronous(max(1, abs(missing)), _TURN_S)
            late.collect(observation)


def _asynchronous(seen: Observation) -> int:
    return len(seen.packet_ins) + seen.removed.total() + seen.port_status.total()


def _shown(step: Step) -> str:
    return observation.shortened(repr(step))
