"""Flow monitors of every version: replies and reports byte for byte as one bridge's, and stock ovs-ofctl."""

import dataclasses
import itertools
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.oracle import monitors, test_bundles
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages10
from tests.oracle.dialects.nicira import action
from tests.oracle.monitors import ACTIONS, ADD, ALL, CHANGES, DELETE, INITIAL, MODIFY, OWN, Monitor, cancel, request
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import Peer, frame
from tests.oracle.world import clear_messages

VERSIONS = (1, 4, 5, 6)
_TO_1 = (("in_port", 1, None),)
WATCHERS = {
    "everything": (Monitor(),),
    "without actions": (Monitor(1, INITIAL | CHANGES | OWN),),
    "abbreviated": (Monitor(1, INITIAL | CHANGES | ACTIONS),),
    "additions": (Monitor(1, ADD | ACTIONS | OWN),),
    "removals": (Monitor(1, DELETE | OWN),),
    "modifications": (Monitor(1, MODIFY | ACTIONS | OWN),),
    "a port": (Monitor(1, ALL, out_port=2),),
    "a group": (Monitor(1, ALL, out_group=1),),
    "a table": (Monitor(1, ALL, table=1),),
    "a match": (Monitor(1, ALL, fields=_TO_1),),
    "several": (
        Monitor(1, ADD | OWN, out_port=2),
        Monitor(2, INITIAL | CHANGES | ACTIONS, table=1),
        Monitor(3, DELETE, fields=_TO_1),
    ),
}
"""The monitors of each controller of each version."""

_xids = itertools.count(0x100)


def rule(port: int = 0, to: int = 1, instructions: bytes | None = None, **named: int) -> of.FlowMod:
    """Return the ADD of a rule for packets from a port; 0: from any."""
    fields = (("in_port", port, None),) if port else ()
    told = of.apply_actions(of.output(to)) if instructions is None else instructions
    return dataclasses.replace(of.FlowMod(priority=7, fields=fields, instructions=told), **named)


def mod(port: int = 0, to: int = 1, **named: int) -> bytes:
    """Return a flow-mod."""
    return rule(port, to, None, **named).encode(next(_xids))


def group(command: int, number: int, to: int = 1) -> bytes:
    """Return a group-mod."""
    buckets = of.bucket(of.output(to)) if command < 2 else b""
    return of.group_mod(next(_xids), command, 0, number, buckets)


def to_group(port: int, number: int, **named: int) -> bytes:
    """Return the ADD of a rule that sends to a group."""
    return rule(port, 0, of.apply_actions(of.group_action(number)), **named).encode(next(_xids))


def meter(command: int, number: int) -> bytes:
    """Return a meter-mod."""
    return of.meter_mod(next(_xids), command, 1, number, of.band(1, 100) if command < 2 else b"")


def metered(number: int) -> bytes:
    """Return the ADD of a rule with a meter."""
    return rule(3, 0, of.meter(number) + of.apply_actions(of.output(1))).encode(next(_xids))


def in_10(command: int, to: int, cookie: int = 0, port: int = 1) -> bytes:
    """Return a flow-mod of OpenFlow 1.0 for packets from a port."""
    matching = struct.pack("!IH34x", (1 << 22) - 2, port)
    rest = struct.pack("!QHHHHIHHHHHH", cookie, command, 0, 0, 7, of.NO_BUFFER, 0xFFFF, 0, 0, 8, to, 0)
    return frame(14, matching + rest, 1, next(_xids))


def setting_in_10() -> bytes:
    """Return a flow-mod of OpenFlow 1.0 with setters that later versions lack."""
    to_sctp = (("eth_type", 0x0800, None), ("ip_proto", 132, None))
    tunnel = action(2, struct.pack("!2xI", 5))
    done = messages10.set_number(9, 80) + messages10.set_number(10, 81) + tunnel + messages10.output(1)
    return messages10.FlowMod10(priority=7, fields=to_sctp, actions=done).encode(next(_xids))


def whole(*parts: bytes) -> bytes:
    """Return a bundle."""
    return test_bundles.whole(*parts)


CHANGE: tuple[tuple[str, int, Callable[[], bytes]], ...] = (
    ("add", 4, lambda: mod(1)),
    ("add again", 4, lambda: mod(1)),
    ("add in its place", 4, lambda: mod(1, 2, cookie=5)),
    ("add with a barrier", 4, lambda: mod(2, 2) + of.message(of.BARRIER_REQUEST, 3) + mod(3, 3, table=1, cookie=9)),
    ("add with timeouts", 4, lambda: mod(3, 3, idle=100, hard=200, flags=1)),
    ("add for all packets", 4, lambda: mod(0, 2, priority=1, table=1)),
    ("modify all", 4, lambda: mod(0, 2, command=of.MODIFY)),
    ("modify nothing", 4, lambda: mod(0, 2, command=of.MODIFY)),
    ("modify away from a port", 4, lambda: mod(0, 3, command=of.MODIFY)),
    ("modify one", 4, lambda: mod(1, 1, command=of.MODIFY_STRICT)),
    ("modify what is not there", 4, lambda: mod(9, 1, command=of.MODIFY_STRICT)),
    ("refused", 4, lambda: to_group(4, 99)),
    ("refused between others", 4, lambda: mod(4) + to_group(4, 99) + mod(4, 2)),
    ("delete one", 4, lambda: mod(4, command=of.DELETE_STRICT)),
    ("delete by port", 4, lambda: mod(0, 0, command=of.DELETE, out_port=3)),
    ("delete nothing", 4, lambda: mod(9, command=of.DELETE)),
    ("group", 4, lambda: group(0, 1) + to_group(1, 1) + to_group(2, 1, table=1)),
    ("group changed", 4, lambda: group(1, 1, 2)),
    ("group deleted", 4, lambda: group(2, 1)),
    ("groups deleted", 4, lambda: group(0, 1) + group(0, 2) + to_group(1, 1) + to_group(2, 2) + group(2, of.GROUP_ALL)),
    ("meter deleted", 4, lambda: meter(0, 1) + metered(1) + meter(2, 1)),
    ("OpenFlow 1.0 adds", 1, lambda: in_10(0, 1, 3)),
    ("OpenFlow 1.0 modifies", 1, lambda: in_10(1, 2, 3)),
    ("OpenFlow 1.0 changes a cookie", 1, lambda: in_10(1, 2, 4)),
    ("OpenFlow 1.0 modifies nothing", 1, lambda: in_10(1, 2, 4)),
    ("OpenFlow 1.0 adds by modifying", 1, lambda: in_10(1, 2, 4, port=5)),
    ("OpenFlow 1.0 deletes", 1, lambda: in_10(3, 2, 4)),
    ("OpenFlow 1.0 sets ports", 1, setting_in_10),
    ("OpenFlow 1.4 adds", 5, lambda: b"\5" + mod(1)[1:]),
    ("bundle", 4, lambda: whole(mod(1), mod(2, 2), mod(0, 3, command=of.MODIFY), mod(2, command=of.DELETE_STRICT))),
    ("bundle refused", 4, lambda: whole(mod(1), to_group(1, 99))),
    ("bundle with a group", 4, lambda: whole(group(0, 1), to_group(3, 1), mod(3, 2, table=1))),
    ("delete all", 4, lambda: mod(0, command=of.DELETE, table=of.ALL_TABLES)),
)


class Switch:
    """A switch with controllers of every version that monitor it."""

    def __init__(self, target: str, watchers: dict[str, tuple[Monitor, ...]] = WATCHERS) -> None:
        self.peers: dict[str, Peer] = {}
        self.target = target
        # Rules that are there before.
        actor = Peer(target, frame(0))
        actor.send(clear_messages(1) + mod(1) + mod(2, 2, table=1) + mod(0, 3, priority=1))
        actor.answers()
        actor.close()
        for version, (name, wanted) in itertools.product(VERSIONS, watchers.items()):
            peer = Peer(target, frame(0, version=version), version)
            self.peers[f"{name}, version {version}"] = peer
            peer.send(request(version, *wanted))

    def close(self) -> None:
        """Disconnect all controllers."""
        for peer in self.peers.values():
            peer.close()

    def does(self, data: bytes, by: str) -> dict[str, list[str]]:
        """Let a controller send messages; return what each controller gets."""
        actor = self.peers[by]
        actor.send(data)
        got = {by: self._shown(actor)}
        others = ((name, peer) for name, peer in self.peers.items() if name != by)
        return got | {name: self._shown(peer) for name, peer in others}

    @staticmethod
    def _shown(peer: Peer) -> list[str]:
        return [_shown(each) for each in peer.answers()]


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """Both worlds."""
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture
def switches(comparison: Comparison) -> Iterator[tuple[Switch, Switch]]:
    ours, reference = (Switch(target) for target in comparison.targets)
    yield ours, reference
    ours.close()
    reference.close()


@pytest.mark.parametrize("watcher", ["everything", "abbreviated", "several"])
def test_changes_are_reported_as_by_one_bridge(switches: tuple[Switch, Switch], watcher: str) -> None:
    for name, version, change in (("initial", 4, bytes), *CHANGE):
        data = change()
        ours, reference = (switch.does(data, f"{watcher}, version {version}") for switch in switches)
        assert ours == reference, name


def ask(target: str, version: int, data: bytes) -> list[str]:
    """Return the answers to messages on a connection of their own, and what a change leads to afterwards."""
    peer, actor = Peer(target, frame(0, version=version), version), Peer(target, frame(0))
    try:
        peer.send(data)
        answers = peer.answers()
        actor.send(mod(6, 2) + mod(6, command=of.DELETE_STRICT))
        actor.answers()
        told = peer.answers()
        return [*map(_shown, answers), "then", *map(_shown, told)]
    finally:
        peer.close()
        actor.close()


def _shown(answer: str) -> str:
    return answer if answer == "disconnected" else monitors.shown(bytes.fromhex(answer))


def nicira(number: int, body: bytes, version: int = 1) -> bytes:
    """Return a message of Nicira's."""
    return frame(4, struct.pack("!II", 0x2320, number) + body, version)


def onf(number: int, body: bytes, version: int = 4) -> bytes:
    """Return a message of the ONF's."""
    return frame(4, struct.pack("!II", of.ONF, number) + body, version)


def parts(version: int, *several: tuple[Monitor, ...]) -> bytes:
    """Return a request in several messages."""
    told = (b"".join(each.entry(version) for each in some) for some in several)
    return b"".join(monitors.of_entries(version, some, 7, int(some_left)) for some_left, some in _with_more(told))


def _with_more(items: Iterator[bytes]) -> Iterator[tuple[bool, bytes]]:
    listed = list(items)
    return ((index < len(listed) - 1, item) for index, item in enumerate(listed))


ANSWERED: dict[str, Callable[[int], bytes]] = {
    "nothing": lambda v: monitors.of_entries(v, b""),
    "one": lambda v: request(v, Monitor()),
    "two": lambda v: request(v, Monitor(1), Monitor(2, INITIAL | ADD, table=0)),
    "cancelled": lambda v: request(v, Monitor(1), Monitor(2, DELETE)) + cancel(v, 1),
    "made again": lambda v: request(v, Monitor()) + cancel(v, 1) + request(v, Monitor(), xid=9),
    "hidden table": lambda v: request(v, Monitor(1, CHANGES, table=254)),
    "flags": lambda v: b"".join(
        request(v, Monitor(flags, flags)) for flags in range(1, 1 << 6) if flags & CHANGES and flags & OWN
    ),
    "of Nicira over 1.3": lambda v: (
        frame(18, struct.pack("!HH4xII", 0xFFFF, 0, 0x2320, 2) + Monitor().entry(1), v) if v > 1 else b""
    ),
    "of ONF over 1.4": lambda v: (
        frame(18, struct.pack("!HH4xII", 0xFFFF, 0, of.ONF, 1870) + Monitor().entry(4), v) if v > 4 else b""
    ),
    "native over 1.3": lambda v: frame(18, struct.pack("!HH4x", 16, 0) + Monitor().entry(5), v) if v == 4 else b"",
    "cancel of Nicira": lambda v: nicira(21, bytes(4), v) + nicira(21, bytes(8), v) + nicira(21, b"", v),
    "cancel of ONF": lambda v: onf(1870, bytes(4), v) + onf(1870, bytes(8), v) + onf(1870, b"", v) if v > 1 else b"",
    "pauses": lambda v: (
        b"".join(nicira(n, bytes(length), v) for n in (22, 23) for length in (0, 4, 8))
        + (b"".join(onf(n, bytes(length), v) for n in (1871, 1872) for length in (0, 4, 8)) if v > 1 else b"")
    ),
    "with changes before and after": lambda v: (
        mod(5) + request(v, Monitor(1, ALL & ~OWN)) + mod(5, 2) + of.message(of.BARRIER_REQUEST, 3)
        if v == 4
        else in_10(0, 1, port=5) + request(v, Monitor(1, ALL & ~OWN)) + in_10(0, 2, port=5)
        if v == 1
        else bytes((v,)) + mod(5)[1:] + request(v, Monitor(1, ALL & ~OWN)) + bytes((v,)) + mod(5, 2)[1:]
    ),
    "several messages": lambda v: parts(v, (Monitor(1),), (Monitor(2, DELETE), Monitor(3)), ()) if v > 1 else b"",
    "commands of 1.4": lambda v: (
        b"".join(
            monitors.of_entries(v, Monitor(1, flags).entry(v, command), xid)
            for xid, (command, flags) in enumerate(
                (("add", ALL), ("modify", ADD | INITIAL), ("delete", 0), ("add", DELETE))
            )
        )
        if v > 4
        else b""
    ),
    "unknown command of 1.4": lambda v: (
        monitors.of_entries(v, Monitor().entry(v)[:15] + b"\3" + Monitor().entry(v)[16:]) if v > 4 else b""
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("data", ANSWERED.values(), ids=ANSWERED)
def test_requests_are_answered_as_by_one_bridge(
    comparison: Comparison, data: Callable[[int], bytes], version: int
) -> None:
    sent = data(version)
    ours, reference = (ask(target, version, sent) for target in comparison.targets)
    assert ours == reference


_FAKE_XID = 0x63


def fake(version: int) -> bytes:
    """Return what Open vSwitch 3.1 takes for the refused message: whatever follows the entry that it refuses."""
    return struct.pack("!BBHI", version, 0, 8, _FAKE_XID)


def _changed(entry: bytes, at: int, byte: int) -> bytes:
    return entry[:at] + bytes((byte,)) + entry[at + 1 :]


REFUSED: dict[str, Callable[[int], bytes]] = {
    "exists": lambda v: Monitor(1).entry(v) * 2 + fake(v),
    "too short": lambda v: Monitor(1).entry(v) + fake(v),
    # Flags are read before the match.
    "flags": lambda v: Monitor(1).entry(v) + Monitor(2, INITIAL).entry(v)[:16] + fake(v),
    "unknown flags": lambda v: Monitor(1).entry(v) + Monitor(2, ADD | 1 << 9).entry(v)[:16] + fake(v),
    "match": lambda v: Monitor(1).entry(v) + _with_unknown_field(v) + fake(v),
    "padding": lambda v: Monitor(1).entry(v) + _changed(Monitor(2).entry(v)[:16], 15, 1) + fake(v) if v < 5 else b"",
    "port": lambda v: Monitor(1).entry(v) + Monitor(2, out_port=0x10000).entry(v)[:16] + fake(v) if v > 1 else b"",
    "unknown to modify": lambda v: Monitor(1).entry(v) + Monitor(2).entry(v, "modify") + fake(v) if v > 4 else b"",
    "unknown to delete": lambda v: Monitor(1).entry(v) + Monitor(2).entry(v, "delete") + fake(v) if v > 4 else b"",
}


def _with_unknown_field(version: int) -> bytes:
    field = struct.pack("!IH", 0x00017E02, 1)
    if version == 1:
        return struct.pack("!IHHHB5x", 2, ALL, 0xFFFF, len(field), 0xFF) + of.padded(field)
    entry = Monitor(2).entry(version)
    return entry[:-8] + of.padded(struct.pack("!HH", 1, 4 + len(field)) + field)


def numbers(message: bytes) -> bytes:
    """Return type and code of an error, and its vendor's."""
    assert message[1] == of.ERROR
    vendor = message[8:12] == b"\xb0\xc2\0\0", message[8:10] == b"\xff\xff"
    return message[8:20] if vendor[0] else message[8:16] if vendor[1] else message[8:12]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_requests_are_refused_as_by_one_bridge(
    comparison: Comparison, body: Callable[[int], bytes], version: int
) -> None:
    if not body(version):
        pytest.skip("this version has no such error")
    data = monitors.of_entries(version, body(version))
    ours, reference = (ask(target, version, data) for target in comparison.targets)
    mine, theirs = bytes.fromhex(ours[0]), bytes.fromhex(reference[0])
    # Open vSwitch 3.1 takes what follows the refused entry for the refused message.
    assert theirs.endswith(fake(version))
    assert theirs[4:8] == fake(version)[4:]
    assert mine.endswith(data)
    assert mine[4:8] == data[4:8]
    assert numbers(mine) == numbers(theirs)
    assert ours[1:] == reference[1:]


def test_a_rule_that_times_out_is_reported(switches: tuple[Switch, Switch]) -> None:
    reports = []
    for switch in switches:
        switch.does(mod(7, 2, idle=1) + mod(8, 2, hard=1), "everything, version 4")
        watchers = ("everything, version 1", "everything, version 4", "everything, version 5", "removals, version 4")
        told = {name: sorted(monitors.shown(switch.peers[name].next()) for _ in range(2)) for name in watchers}
        reports.append(told)
        switch.does(b"", "everything, version 4")
    assert reports[0] == reports[1]


def test_a_slave_is_told_of_changes(comparison: Comparison) -> None:
    slave = of.role_request(1, 3, 1 << 63)
    ours, reference = (ask(target, 4, request(4, Monitor()) + slave) for target in comparison.targets)
    assert ours == reference
    assert len(ours) > 4


def _pauses(version: int) -> tuple[bytes, bytes]:
    """Return the messages that tell of a pause and of its end."""
    numbers = (0x2320, 22, 23) if version == 1 else (of.ONF, 1871, 1872)
    paused, resumed = (frame(4, struct.pack("!II", numbers[0], number), version, 0) for number in numbers[1:])
    return paused, resumed


def _told_after_a_pause(target: str, version: int) -> list[str]:
    """Return what a controller gets that makes a monitor during a pause, from the pause on, but for its reply."""
    actor, watcher = Peer(target, frame(0)), Peer(target, frame(0, version=version), version)
    paused, resumed = _pauses(version)
    try:
        actor.send(clear_messages(1) + b"".join(mod(port, 2) for port in (2, 3)) + mod(1, table=1))
        actor.answers()
        watcher.send(request(version, Monitor(1, CHANGES | ACTIONS, table=1)))
        watcher.answers()
        # More than all buffers on the way.
        for number in range(40):
            long = of.apply_actions(of.output(1 + number % 2) * 3000)
            actor.send(rule(1, 0, long, table=1, command=of.MODIFY).encode(next(_xids)))
            actor.answers()
        actor.send(mod(3, command=of.MODIFY) + mod(2, command=of.DELETE) + mod(5) + mod(6) + mod(6, command=of.DELETE))
        actor.answers()
        watcher.send(request(version, Monitor(2, CHANGES | ACTIONS, table=0), xid=9))
        # The switch has read the request when it has answered these.
        for _ in range(10):
            actor.answers()
        actor.send(mod(7))
        actor.answers()
        while watcher.next() != paused:
            pass
        told: list[str] = []
        while (message := watcher.next()) != resumed:
            told += [entry.hex() for entry in monitors.entries(message) or ()]
        return sorted(told)
    finally:
        actor.send(clear_messages(1))
        actor.answers()
        actor.close()
        watcher.close()


@pytest.mark.parametrize("version", [1, 4])
def test_a_monitor_made_during_a_pause_gets_the_changes_since_it_began(comparison: Comparison, version: int) -> None:
    ours, reference = (_told_after_a_pause(target, version) for target in comparison.targets)
    assert ours == reference
    # The long rule, and those of ports 3, 5 and 7.
    assert len(ours) == 4


COMMANDS = (
    ("-OOpenFlow10", "!delete,table=0,out_port=2"),
    ("-OOpenFlow10", ""),
    ("-OOpenFlow13", "!own"),
    ("-OOpenFlow14", "table=1"),
    ("-OOpenFlow15", ""),
)


@pytest.mark.parametrize(("version", "watched"), COMMANDS)
def test_ovs_ofctl_monitors(comparison: Comparison, version: str, watched: str, tmp_path: Path) -> None:
    ours, reference = (_monitored(target, version, watched, tmp_path) for target in comparison.targets)
    assert ours == reference
    assert any("event=" in line for line in ours)


def _monitored(target: str, version: str, watched: str, run: Path) -> list[str]:
    """Return what ovs-ofctl prints of some changes, the last of which the monitor waits for."""
    ofctl(target, "del-flows")
    ofctl(target, "add-flow", "table=1,in_port=1,actions=output:2")
    process = subprocess.Popen(
        ["ovs-ofctl", version, "monitor", target, f"watch:{watched}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OVS_RUNDIR": str(run)},
    )
    assert process.stdout is not None
    lines = []
    try:
        # It prints the reply to its request first.
        lines.append(process.stdout.readline())
        for flow in ("table=1,in_port=1,actions=output:3", "in_port=2,cookie=5,actions=output:2"):
            ofctl(target, "add-flow", flow)
        ofctl(target, "del-flows", "in_port=2")
        ofctl(target, "del-flows")
        last = "table=1,in_port=9,cookie=0x99,actions=output:2"
        ofctl(target, "add-flow", last if "table=1" in watched else last.replace("table=1,", ""))
        while "cookie=0x99" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        ofctl(target, "del-flows")
    return sorted(line.partition("xid=")[0] for line in lines)
