"""Steps in both worlds, and the comparison of their effects."""

import dataclasses
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.errors import LabError
from lab.spec import Meters
from server.errors import ServerError
from server.names import HOME, LinkType
from tests.oracle import observation
from tests.oracle import openflow as of
from tests.oracle.channel import ChannelError
from tests.oracle.dialects import nicira
from tests.oracle.observation import Observation
from tests.oracle.one_bridge import OneBridge
from tests.oracle.one_switch import OneSwitch
from tests.oracle.steps import (
    BreakLink,
    Check,
    GoHome,
    Inject,
    PortMod,
    RestartOneswitchd,
    RestartSwitch,
    Script,
    Send,
    Step,
    Timed,
)
from tests.oracle.tally import Tally
from tests.oracle.world import World, clear_messages

_TURN_S, _LATE_TURNS = 0.05, 60
_BUSY_S, _ALIVE_S, _PACE_S, _STALL_S, _END_S = 2.2, 8.0, 0.2, 0.6, 8.0
_NO_RECV = 4 | 8
"""Also that of Spanning Tree Protocol."""
_TAGS = (b"\x81\x00", b"\x88\xa8")


class DifferenceError(AssertionError):
    """The two worlds behaved differently."""


class Comparison:
    """oneswitchd over several switches, one bridge, and a run of both.

    Args:
        switches: number of oneswitchd's switches.
        binary: of oneswitchd; None finds the installed one.
        mutant: an oneswitchd with a fault, in place of ``binary``. Each run then starts its own oneswitchd, so that
            remains of the previous run are not mistaken for faults.
        executor: the server's default.
        stateful: draw rules that keep state for all ports; without one executor for all, they gather the ports.
        meters: what oneswitchd does about meters: they gather the ports, too, or not.
        links, ovs: as `OneSwitch`.
    """

    def __init__(
        self,
        switches: int,
        binary: Path | None = None,
        mutant: Path | None = None,
        executor: str = HOME,
        stateful: bool = False,
        meters: Meters = "per-executor",
        links: tuple[LinkType, ...] = (),
        ovs: str | None = None,
    ) -> None:
        self._binary = binary
        self.links, self._ovs = links, ovs
        self.mutant = mutant
        self.script = Script(switches, executor=executor, stateful=stateful, meters=meters, links=links)
        self.stateful = stateful
        self._meters: Meters = meters
        self.tally = Tally()
        self._start()
        self.steps = 0
        self._deaf: set[int] = set()
        self._counters_differ = False

    def _start(self) -> None:
        switches, executor = self.script.switches, self.script.executor
        self.ours = OneSwitch(
            switches,
            self._binary,
            executor,
            stateful=self.stateful,
            meters=self._meters,
            links=self.links,
            ovs=self._ovs,
        )
        self.reference = OneBridge(self.ours.spec.reference(), self.ours.behind, stateful=self.stateful)
        self._broken = False

    @property
    def targets(self) -> tuple[str, str]:
        """The management sockets of oneswitchd and of the bridge, as targets of ovs-ofctl."""
        return self.ours.daemon.management, self.reference.lab.state.switches[0].virt

    def close(self) -> None:
        """End both worlds."""
        self.ours.close()
        self.reference.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def reset(self) -> None:
        """Begin a new run."""
        self.script = dataclasses.replace(self.script, steps=[], note="")
        if self._broken:
            self.close()
            self._start()
        self._deaf.clear()
        self._counters_differ = False
        if self.mutant is not None:
            self.ours.begin_binary(self.mutant)
        for world in (self.ours, self.reference):
            world.reset()

    def play(self, step: Step) -> None:
        """Do a step in both worlds.

        Raises:
            DifferenceError: they did not do the same.
        """
        self.script.steps.append(step)
        self.steps += 1
        self.tally.add(step)
        # The reference first: a feature that oneswitchd lacks is found even if oneswitchd hangs.
        expected, seen = self._apply(self.reference, step), self._apply(self.ours, step)
        if isinstance(step, BreakLink):
            seen, expected = seen.with_link_states(), expected.with_link_states()
        if isinstance(step, Timed):
            self._let_time_pass(step, seen, expected)
        self._await(seen, expected)
        self._note(step, seen)
        self.tally.reported(seen.reports.total())
        if self.stateful and isinstance(step, Send | GoHome):
            self.tally.gathered(is_gathered=self.ours.is_gathered())
        if self._counters_differ:
            seen, expected = seen.without_counters(), expected.without_counters()
        if self.script.switches > 1:
            seen = seen.without_tags_at_meters(expected)
        if "pcie" in self.links:
            seen = seen.with_frames_in_order(expected)
        differences = seen.differences(expected)
        if differences and self._is_known(step, expected):
            self._counters_differ = True
        elif differences:
            raise DifferenceError(f"step {len(self.script.steps)}, {_shown(step)}\n" + "\n".join(differences))

    def _apply(self, world: World, step: Step) -> Observation:
        with self._failing_with(world, step):
            return world.apply(step)

    @contextmanager
    def _failing_with(self, world: World, step: Step) -> Iterator[None]:
        """Report a world that fails or hangs as a difference; the next run gets new worlds."""
        try:
            yield
        except (ChannelError, LabError, ServerError) as error:
            self._broken = True
            who = "oneswitchd" if world is self.ours else "the one switch"
            raise DifferenceError(f"step {len(self.script.steps)}, {_shown(step)}\n{who}: {error}") from error

    def _is_known(self, step: Step, expected: Observation) -> bool:
        with self._failing_with(self.reference, step):
            return self._given_up(step) or self._reparsed(step, expected)

    def finish(self) -> None:
        """End a run: compare everything, then remove everything and compare the reports."""
        self.play(Check())
        self.play(Send((clear_messages(0x7FFFFFFF).hex(),), "delete all"))
        self.play(Check())

    def run(self, script: Script) -> None:
        """Reset, and play a script to its end."""
        self.reset()
        for step in script.steps:
            self.play(step)

    def _let_time_pass(self, step: Timed, seen: Observation, expected: Observation) -> None:
        """Send frames in both worlds until the rules that they do not keep alive expire; then wait for the rest."""
        pairs = ((self.ours, seen), (self.reference, expected))
        frames, gap, alike = Inject(step.port, (step.frame,)), 0.0, False
        begin = last = time.monotonic()
        while not alike and gap < _STALL_S and last - begin < _ALIVE_S:
            for world, into in pairs:
                into.add(world.apply(frames))
            if last - begin > _BUSY_S:
                for world, into in pairs:
                    into.add(world.apply(Check()))
                alike = seen.state == expected.state and seen.removed == expected.removed
            gap = max(gap, time.monotonic() - last)
            last = time.monotonic()
            time.sleep(_PACE_S)
        if gap > _STALL_S:  # this machine stalled: lifetimes prove nothing, nor does what the frames met
            self._counters_differ = True
            for _, into in pairs:
                into.state, into.packet_ins, into.frames = {}, [], {}
        wanted = len(step.messages)
        while time.monotonic() - last < _END_S and any(into.told_of_removals() < wanted for _, into in pairs):
            for world, into in pairs:
                world.wires.purge()
                world.await_asynchronous(_TURN_S)
                world.collect(into)

    def _note(self, step: Step, seen: Observation) -> None:
        """Note the known differences that a step causes.

        Open vSwitch counts what a port with NO_RECV drops at the rule that would have matched. A switch that ends takes
        its counters with it, and its ports are down meanwhile. The journal has no base counters of groups and meters.
        """
        if isinstance(step, RestartSwitch):
            seen.port_status.clear()
        self._counters_differ |= isinstance(step, RestartOneswitchd | RestartSwitch)
        # Until the run ends: a later port-mod may be refused, or have only one of both bits.
        if isinstance(step, PortMod) and step.right_address and step.config & step.mask & _NO_RECV:
            self._deaf.add(step.port)
        self._counters_differ |= isinstance(step, Inject) and step.port in self._deaf

    def _given_up(self, step: Step) -> bool:
        """Tell of a known difference: of an abandoned packet, only copies that already left the bridge are sent."""
        if not isinstance(step, Inject):
            return False
        return any(self.reference.translation_fails(step.port, bytes.fromhex(frame)) for frame in step.frames)

    def _reparsed(self, step: Step, expected: Observation) -> bool:
        """Tell of known differences: a packet recirculated by a select group is not parsed again at a PCIe link.

        A packet parsed again there, on its way elsewhere, may have another hash at the group.
        """
        frames = (bytes.fromhex(frame) for some in expected.frames.values() for frame in some)
        if not any(frame[12:14] in _TAGS for frame in frames):
            return False
        match step:
            case Inject():
                return any(self.reference.hashes(step.port, bytes.fromhex(frame)) for frame in step.frames)
            case Send():
                sent = [bytes.fromhex(m) for s in self.script.steps if isinstance(s, Send) for m in s.messages]
                selects = any(_has_select_group(message) for message in sent)
                return selects and any(bytes.fromhex(m)[1] == of.PACKET_OUT for m in step.messages)
            case _:
                return False

    def _await(self, seen: Observation, expected: Observation) -> None:
        """Wait for messages that may be late.

        Open vSwitch reports a removed rule when nothing refers to it any more: no cached flow, no thread that has not
        slept since.
        """
        # Messages that a mutant withholds must not take long; the script passed without it, patiently.
        for _ in range(_LATE_TURNS // 4 if self.mutant not in (None, self._binary) else _LATE_TURNS):
            missing = _asynchronous(expected) - _asynchronous(seen)
            if missing == 0 and expected.removed == seen.removed and expected.reports == seen.reports:
                return
            for world in (self.ours, self.reference):
                world.wires.purge()
            late, observation = (self.ours, seen) if missing > 0 else (self.reference, expected)
            late.await_asynchronous(_TURN_S)
            late.collect(observation)


def _asynchronous(seen: Observation) -> int:
    return len(seen.packet_ins) + seen.removed.total() + seen.port_status.total() + seen.reports.total()


def _has_select_group(message: bytes) -> bool:
    if nicira.is_one(message):
        return message[12:16] == struct.pack("!I", nicira.GROUP_MOD) and message[18] == of.SELECT_GROUP
    return message[1] == of.GROUP_MOD and message[10] == of.SELECT_GROUP


def _shown(step: Step) -> str:
    return observation.shortened(repr(step))
