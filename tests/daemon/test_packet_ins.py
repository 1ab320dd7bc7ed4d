"""Packet-ins with Nicira's extensions do the same from several switches as from one bridge."""

import dataclasses
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.control_plane import Oneswitchd
from server.names import HOME
from tests.daemon.twin import SPEC, Twin, frame, ofctl, start_twin
from tests.oracle.peer import Peer
from tests.oracle.peer import frame as message

_NICIRA = 0x2320
_HELLO, _EXPERIMENTER, _SET_CONFIG = 0, 4, 9
_SET_FORMAT, _SET_ID, _RESUME, _PACKET_IN2 = 16, 20, 28, 30
_USERDATA, _CONTINUATION = 7, 8


@pytest.fixture
def twin(lab_dir: Path) -> Iterator[Twin]:
    """Return a server whose three ports each execute at their own switch, and one bridge."""
    with start_twin(dataclasses.replace(SPEC, executor=HOME)) as twin:
        yield twin


def nicira(subtype: int, body: bytes) -> bytes:
    return message(_EXPERIMENTER, struct.pack("!II", _NICIRA, subtype) + body)


def connect(stack: ExitStack, twin: Twin, *choices: bytes) -> list[Peer]:
    """Connect a controller to each of both that makes these choices and gets packet-ins."""
    peers = []
    for target in twin.targets:
        peer = Peer(target, message(_HELLO))
        stack.callback(peer.close)
        peer.send(message(_SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)) + b"".join(choices))
        assert peer.answers() == []
        peers.append(peer)
    return peers


def properties(packet_in: bytes) -> dict[int, bytes]:
    """Return the properties of a packet-in of the second format."""
    assert struct.unpack_from("!II", packet_in, 8) == (_NICIRA, _PACKET_IN2)
    rest, found = packet_in[16:], {}
    while rest:
        kind, length = struct.unpack_from("!HH", rest)
        found[kind] = rest[4:length]
        rest = rest[(length + 7) // 8 * 8 :]
    return found


def test_a_packet_is_continued_at_the_switch_that_has_sent_it(twin: Twin) -> None:
    twin.ofctl("add-group", "group_id=7,type=all,bucket=output:1,bucket=output:2")
    rules = ("in_port=1,actions={},output:3", "in_port=2,actions={},group:7", "in_port=3,actions={},dec_ttl,flood")
    for rule in rules:
        twin.ofctl("add-flow", "ip," + rule.format("controller(pause,userdata=01.02.03)"))
    with ExitStack() as stack:
        peers = connect(stack, twin, nicira(_SET_FORMAT, struct.pack("!I", 2)))
        for port in (3, 1, 2, 3):
            assert twin.send(port, frame(port, 9)) == {}
            packet_ins = [peer.next() for peer in peers]
            ours, reference = (properties(each) for each in packet_ins)
            assert ours.pop(_CONTINUATION)
            assert reference.pop(_CONTINUATION)
            assert ours == reference
            assert ours[_USERDATA] == b"\1\2\3"
            for peer, packet_in in zip(peers, packet_ins, strict=True):
                peer.send(nicira(_RESUME, packet_in[16:]))
                assert peer.answers() == []
            assert twin.settle()

        # A controller with another format gets the same packets, without what continues them.
        for others in [connect(stack, twin), connect(stack, twin, nicira(_SET_FORMAT, struct.pack("!I", 1)))]:
            twin.send(2, frame(2, 9))
            ours, reference = (peer.next() for peer in others)
            assert ours == reference


def test_a_packet_is_continued_after_a_restart(twin: Twin) -> None:
    for port in (1, 2, 3):
        twin.ofctl("add-flow", f"in_port={port},actions=controller(pause),output:{port % 3 + 1}")
    with ExitStack() as stack:
        peers = connect(stack, twin, nicira(_SET_FORMAT, struct.pack("!I", 2)))
        paused: list[list[bytes]] = []
        for port in (1, 2, 3):
            assert twin.send(port, frame(port, 9)) == {}
            paused.append([peer.next() for peer in peers])
    twin.daemon.stop()
    with Oneswitchd(twin.labs[0].server_toml) as again:
        again.wait_up()
        for port, packet_ins in zip((1, 2, 3), paused, strict=True):
            for target, packet_in in zip(twin.targets, packet_ins, strict=True):
                peer = Peer(target, message(_HELLO))
                peer.send(nicira(_RESUME, packet_in[16:]))
                assert peer.answers() == []
                peer.close()
            assert list(twin.settle()) == [port % 3 + 1]


def test_packet_ins_go_to_the_controllers_with_their_id(twin: Twin) -> None:
    rules = (
        "in_port=1,actions=controller(id=5)",
        "in_port=2,actions=controller(id=6),controller",
        "in_port=3,actions=controller(id=5,max_len=20,reason=no_match),controller(id=9),output:1",
    )
    for rule in rules:
        twin.ofctl("add-flow", rule)
    with ExitStack() as stack:
        # Two controllers have the same id, and different formats.
        choices = {
            0: b"",
            5: _chosen_id(5),
            55: _chosen_id(5) + nicira(_SET_FORMAT, struct.pack("!I", 2)),
            6: _chosen_id(6),
        }
        peers = {name: connect(stack, twin, choice) for name, choice in choices.items()}
        meant = {1: (5, 55), 2: (6, 0), 3: (5, 55)}
        for port in (3, 1, 2, 2, 3):
            twin.send(port, frame(port, 9))
            for name in meant[port]:
                ours, reference = (peer.next() for peer in peers[name])
                assert ours == reference
                assert ours
        # A controller may choose another id, or none; those that are left get theirs.
        for peer in peers[5]:
            peer.send(_chosen_id(6))
            assert peer.answers() == []
        twin.send(1, frame(1, 9))
        twin.send(2, frame(2, 9))
        for name in (55, 5, 6, 0):
            ours, reference = (peer.next() for peer in peers[name])
            assert ours == reference
        assert [peer.answers() for each in peers.values() for peer in each] == [[]] * 8


def _chosen_id(number: int) -> bytes:
    return nicira(_SET_ID, struct.pack("!6xH", number))


def test_fields_of_tunnel_options_are_those_of_every_switch(twin: Twin) -> None:
    twin.ofctl("add-tlv-map", "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=8}->tun_metadata3")
    twin.ofctl("add-flow", "in_port=3,tun_metadata0=0x1234,actions=set_field:7->tun_metadata3,output:1")
    twin.ofctl("add-flow", "actions=set_field:7->tun_metadata3,output:2")
    for command in ("dump-tlv-map", "dump-flows"):
        ours, reference = twin.ofctl(command)
        assert _steady(ours) == _steady(reference)
    assert list(twin.send(3, frame(3, 9))) == [2]
    # A switch that lost them, and oneswitchd, which was restarted, have them again.
    twin.daemon.stop()
    ofctl("del-flows", twin.labs[0].state.switches[2].virt)
    ofctl("del-tlv-map", twin.labs[0].state.switches[2].virt)
    ofctl("add-tlv-map", twin.labs[0].state.switches[2].virt, "{class=9,type=9,len=4}->tun_metadata9")
    with Oneswitchd(twin.labs[0].server_toml) as again:
        again.wait_up()
        for command in ("dump-tlv-map", "dump-flows"):
            assert _steady(ofctl(command, twin.targets[0])) == _steady(ofctl(command, twin.targets[1]))
        assert list(twin.send(3, frame(3, 9))) == [2]


def _steady(text: str) -> list[str]:
    """Return what both must show alike."""
    lines = [line for line in text.splitlines() if "(xid=" not in line and "NXST" not in line]
    return sorted(" ".join(word for word in line.split() if not word.startswith(("duration=", "n_"))) for line in lines)
