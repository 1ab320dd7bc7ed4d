"""Waits until no switch uses a flipped path: the flows that Open vSwitch caches follow its rules later."""

import contextlib
import logging
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from server.config import SwitchConfig
from server.errors import ToolError
from server.names import EDGE
from server.openvswitch.unixctl import Unixctl

_log = logging.getLogger(__name__)

# Without ovs-appctl: Open vSwitch looks at each flow that it caches within max-revalidator (500 ms); two rounds.
_BOUNDED_QUIESCE_S = 1.0
_ROUNDS = 2
_QUIESCE_S = 2.0  # a switch that hangs forwards nothing either
PAUSES = (("version",), *(("revalidator/pause",), ("revalidator/resume",)) * 2)
"""Asked by one call, because this process may die and a switch must not stay paused: the next pause would stop it for
good. A switch that finds that its client has gone cannot answer the first command, and discards the others."""
_ANSWER_S = 0.1  # for an answer that usually takes 1 ms
_STALL_MS = 5  # for which a switch may stop to look at its caches at once
_DATAPATH = re.compile(r"^(\w+)@\S+:$", re.MULTILINE)
_DURATION = re.compile(r"dump duration *: (\d+)ms")
_SHOWN = (("upcall/show",), ("dpif-netdev/pmd-stats-show",))
_TURN = 10  # requests of a connection that a switch answers in a turn of its main loop (run_connection, lib/unixctl.c)
AT_ONCE = (*_SHOWN, *[("version",)] * (_TURN - len(_SHOWN)), *PAUSES)
"""Tells how a switch works, and has it look at its caches in its next turn."""
_NOBODY = bytes.fromhex("026e66")


class Quiescing(Protocol):
    """Knows the switches on some ways."""

    def wait(self) -> None:
        """Wait until none of them sends anything by paths that have been flipped."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class SwitchQuiescing:
    """See `Quiescing`. Connects to each switch at once, since packets wait later.

    Args:
        switches: the switches.
    """

    def __init__(self, switches: Sequence[SwitchConfig]) -> None:
        self._switches = switches
        self._daemons = self._connected()

    def _connected(self) -> dict[str, Unixctl]:
        """Connect to the switches that would not stop for long to look at their caches."""
        daemons = _connect(self._switches)
        shown = _asked(daemons, *_SHOWN)
        quick = {name for name, told in shown.items() if _is_single_threaded(*told) and _is_short(told[0])}
        for name in daemons.keys() - quick:
            daemons.pop(name).close_when_answered()
        return daemons

    def wait(self) -> None:
        # Used once: after it, a connection may have commands that the switch has not answered.
        daemons, self._daemons = self._daemons or self._connected(), {}
        try:
            done = _revalidate_at_once(daemons)
        finally:
            _close(daemons)
        if not (left := [switch for switch in self._switches if switch.name not in done]):
            return
        with ThreadPoolExecutor(len(left)) as pool:
            if not all(pool.map(_revalidate, left)):
                time.sleep(_BOUNDED_QUIESCE_S)

    def close(self) -> None:
        _close(self._daemons)
        self._daemons = {}


def single_threaded(switches: Sequence[SwitchConfig]) -> set[str]:
    """Return the names of the switches whose main thread does all; a switch that does not answer is not among them."""
    daemons = _connect(switches)
    try:
        return {name for name, told in _asked(daemons, *_SHOWN).items() if _is_single_threaded(*told)}
    finally:
        _close(daemons)


def _connect(switches: Sequence[SwitchConfig]) -> dict[str, Unixctl]:
    daemons: dict[str, Unixctl] = {}
    for switch in switches:
        with contextlib.suppress(ToolError):
            daemons[switch.name] = Unixctl(Path(switch.control or ""), _ANSWER_S)
    return daemons


def _close(daemons: Mapping[str, Unixctl]) -> None:
    for daemon in daemons.values():
        daemon.close_when_answered()


def _revalidate(switch: SwitchConfig) -> bool:
    """Wait until a switch has looked at all flows that it caches, in a round that began after this was called.

    False: it cannot be asked. The command waits for the end of a round, which may have begun before: hence two.
    """
    try:
        with contextlib.closing(Unixctl(Path(switch.control or ""), _QUIESCE_S)) as daemon:
            for _ in range(_ROUNDS):
                _await_round(daemon)
    except ToolError as error:
        _log.info("%s cannot be asked when its caches are right: %s", switch.name, error)
        return False
    return True


def _revalidate_at_once(daemons: Mapping[str, Unixctl]) -> set[str]:
    """Have switches look at all flows that they cache while they do nothing else; return those that have.

    Rounds begin 5 ms apart (udpif_revalidator in ofproto-dpif-upcall.c), and packets wait. This takes 1 ms: the second
    pause begins when the round after the first one has ended. Its caches are right then if one thread does all: others
    might be adding a flow by the old rules. So each switch tells first whether that is still true.

    The pauses are for its next turn: only at its beginning (``type_run``) does a switch tell the revalidators that
    rules have changed, and it may be in the turn that has confirmed the flip.
    """
    answers = _asked(daemons, *AT_ONCE)
    return {name for name, (upcalls, statistics, *_) in answers.items() if _is_single_threaded(upcalls, statistics)}


def _is_single_threaded(upcalls: str, statistics: str) -> bool:
    """Return whether a switch's main thread does all."""
    return set(_DATAPATH.findall(upcalls)) in ({"netdev"}, {"dummy"}) and "pmd thread" not in statistics


def _is_short(upcalls: str) -> bool:
    """Return whether a switch would not stop for long."""
    return all(int(took) <= _STALL_MS for took in _DURATION.findall(upcalls))


def _asked(daemons: Mapping[str, Unixctl], *commands: tuple[str, ...]) -> dict[str, list[str]]:
    """Ask all at a time; return the answers of those that do not refuse."""
    begun: dict[str, Callable[[], list[str]]] = {}
    answers: dict[str, list[str]] = {}
    for name, daemon in daemons.items():
        with contextlib.suppress(ToolError):
            begun[name] = daemon.begin(*commands)
    for name, answer in begun.items():
        with contextlib.suppress(ToolError):
            answers[name] = answer()
    return answers


def _await_round(daemon: Unixctl) -> None:
    """Wait for the end of a round that begins now, and not within 500 ms (max-revalidator).

    The removal of a learnt address causes a round. No rule of ``edge`` looks at such addresses, and no host has this
    one.
    """
    address = (_NOBODY + random.randbytes(3)).hex(":")
    try:
        daemon.call("fdb/add", EDGE, EDGE, "0", address)
    except ToolError:  # before Open vSwitch 2.17
        daemon.call("revalidator/wait")
        return
    daemon.call_at_once(("fdb/del", EDGE, "0", address), ("revalidator/wait",))
