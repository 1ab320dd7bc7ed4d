"""Properties of groups over OpenFlow 1.5 only: how a select group selects buckets, and the numbers of these."""

import struct
import subprocess
import time

import pytest

from lab.state import LabSwitch
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import ask
from tests.oracle.steps import Check, Execute, Inject, Move, RestartOneswitchd, RestartSwitch
from tests.oracle.test_openflow15 import OUTPUT, bucket, bundle, entries, group_mod, in_15, multipart, selection

_VERSION = 6
_SELECT, _MODIFY, _INSERT, _LAST = 1, 1, 3, 0xFFFFFFFE
_NOTICE_S, _POLL_S = 10.0, 0.02
_DESCRIBED = multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))
_DUMP = ("-OOpenFlow15", "dump-groups")


def field(number: int, width: int, oxm_class: int = 0x8000, value: int = 0xFF) -> bytes:
    """Return a field of a hash with the bits that count."""
    return struct.pack("!HBB", oxm_class, number << 1, width) + bytes([value]) * width


_FIELDS = {11: 4, 12: 4, 13: 2, 14: 2, 26: 16, 10: 1, 5: 2, 3: 6, 4: 6, 6: 2, 7: 1, 0: 4, 2: 8, 38: 8, 8: 1, 42: 2}
_NXM = {31: 4, 0: 4, 105: 4, 120: 4, 29: 1, 16: 8, 33: 4}
ALL = b"".join(
    [field(number, width) for number, width in _FIELDS.items()]
    + [field(number, width, 1) for number, width in _NXM.items() if number != 16]
    + [field(3, 8, 0x8001), field(5, 1, 0), field(4, 2, 0), field(15, 2)]
)
BUCKETS = (bucket(7, of.output(2)), bucket(3, of.output(5)), bucket(900, of.output(6)))
WAYS = {
    "hash": selection(b"hash"),
    "dp_hash": selection(b"dp_hash"),
    "fields": selection(b"hash", field(12, 4) + field(11, 4)),
    "bits": selection(b"hash", field(12, 4, value=0x0F)),
    "all fields": selection(b"hash", ALL),
    "twice": selection(b"hash") + selection(b"dp_hash"),
    "another name": selection(b"hash", field(2, 6, 0) + field(16, 8, 1)),
    "a field twice": selection(b"hash", field(2, 6, 0) + field(4, 6)),
    "an unknown field": selection(b"hash", field(99, 4)),
    "a wrong width": selection(b"hash", field(11, 2)),
    "bits of a whole field": selection(b"hash", field(10, 1, value=0x0F)),
    "a mask": selection(b"hash", struct.pack("!HBBII", 0x8000, 11 << 1 | 1, 8, 1, 1)),
    "a short field": selection(b"hash", b"\x80\0"),
}


def answers(both: Comparison, data: bytes) -> None:
    """Require that both answer equally, and describe their groups equally."""
    ours, reference = (ask(target, data, version=_VERSION) for target in both.targets)
    assert ours == reference
    shown = [entries(target, _DESCRIBED) for target in both.targets]
    assert shown[0] == shown[1]


def state_of(both: Comparison, switch: str) -> LabSwitch:
    """Return the addresses of a switch."""
    return next(each for each in both.ours.lab.state.switches if each.name == switch)


def groups_of(both: Comparison, switch: str) -> list[str]:
    """Return the groups of a switch that controllers have."""
    listed = ofctl(state_of(both, switch).virt, *_DUMP).splitlines()
    return sorted(line for line in listed if "group_id=1," in line)


def await_groups(both: Comparison, switch: str) -> None:
    """Wait until a switch has the group as one bridge has it."""
    wanted = sorted(line for line in ofctl(both.targets[1], *_DUMP).splitlines() if "group_id=1," in line)
    assert wanted
    deadline = time.monotonic() + _NOTICE_S
    while groups_of(both, switch) != wanted:
        assert time.monotonic() < deadline, (switch, groups_of(both, switch), wanted)
        time.sleep(_POLL_S)


def ipv4(host: int, port: int) -> str:
    """Return a UDP packet to a host."""
    addresses = bytes([10, 0, 0, port, 10, 0, 0, host])
    header = bytes([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]) + addresses
    udp = struct.pack("!HHHH", 1000 + port, 53, 26, 0)
    return (bytes.fromhex("020000000002020000000001") + b"\x08\0" + header + udp + bytes(18)).hex()


def send(both: Comparison, *properties: bytes) -> None:
    """Add a select group with this property, for packets from port 1."""
    rule = in_15(
        of.FlowMod(fields=(("in_port", 1, None),), instructions=of.apply_actions(of.group_action(1))).encode(9)
    )
    answers(both, group_mod(0, _SELECT, *BUCKETS, properties=b"".join(properties)) + rule)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_way_to_select_is_taken_and_shown_as_by_one_bridge(both: Comparison, way: bytes) -> None:
    answers(both, group_mod(0, _SELECT, *BUCKETS, properties=way))
    assert both.ours.dump() == both.reference.dump()
    answers(both, group_mod(_INSERT, _SELECT, bucket(4, OUTPUT), place=_LAST))
    answers(both, group_mod(_MODIFY, _SELECT, *BUCKETS[:2], properties=WAYS["dp_hash"]))
    answers(both, group_mod(_MODIFY, _SELECT, *BUCKETS))


@pytest.mark.parametrize("way", ["hash", "fields", "bits", "numbers"])
def test_packets_go_where_one_bridge_sends_them(both: Comparison, way: str) -> None:
    send(both, *([WAYS[way]] if way in WAYS else []))
    both.play(Inject(1, tuple(ipv4(host, port) for host in range(1, 9) for port in (1, 2))))
    both.play(Check())


def test_every_executor_keeps_the_properties(both: Comparison) -> None:
    send(both, WAYS["fields"])
    names = [switch.name for switch in both.ours.spec.switches]
    for name in names:
        await_groups(both, name)
    ports = range(1, len(both.ours.spec.ports) + 1)
    for port in ports:
        both.play(Execute(port, 0))
    assert groups_of(both, names[1]) == []
    for step in (Execute(1, 1), Move(2, 1), RestartOneswitchd(), RestartSwitch(1)):
        both.play(step)
        for name in names:
            await_groups(both, name)
    both.play(Inject(1, tuple(ipv4(host, 1) for host in range(1, 9))))


def test_a_change_by_hand_is_repaired(both: Comparison) -> None:
    send(both, WAYS["fields"])
    target = state_of(both, "snic0").virt
    ofctl(target, "-OOpenFlow15", "mod-group", "group_id=1,type=select,bucket=bucket_id:7,output:2")
    both.ours.daemon.client.audit()
    await_groups(both, "snic0")


def test_a_bundle_has_such_groups(both: Comparison) -> None:
    answers(both, bundle(group_mod(0, _SELECT, *BUCKETS, properties=WAYS["fields"])))
    for switch in both.ours.spec.switches:
        await_groups(both, switch.name)
    answers(both, bundle(group_mod(_MODIFY, _SELECT, *BUCKETS, properties=WAYS["hash"]), group_mod(0, _SELECT)))


def test_without_openflow_15_they_are_refused(both: Comparison) -> None:
    switch = state_of(both, "snic0")
    asked = group_mod(0, _SELECT, *BUCKETS, properties=WAYS["hash"])

    def allow(*versions: str) -> None:
        argv = ["ovs-vsctl", f"--db={switch.ovsdb}", "set", "bridge", "virt", "protocols=[" + ",".join(versions) + "]"]
        subprocess.run(argv, check=True)

    allow("OpenFlow10", "OpenFlow13", "OpenFlow14")
    try:
        both.play(RestartOneswitchd())
        ours = ask(both.targets[0], asked + bundle(asked), version=_VERSION)
    finally:
        allow()
    errors = [struct.unpack_from("!HH", bytes.fromhex(each), 8) for each in ours if each[2:4] == "01"]
    assert errors == [(14, 2), (14, 2), (17, 13)]
    both.play(RestartOneswitchd())
    answers(both, asked)
