"""A port moves under traffic in both directions without loss or duplication."""

import os
import signal

import pytest

from lab.control_plane import Oneswitchd
from lab.mobility import MovingHost, there_and_back
from lab.spec import LabSpec
from lab.wires import Wires
from server.errors import ApiRefusedError
from server.oneswitchd.answers import Stage
from server.oneswitchd.settling import settled

FRAME = bytes.fromhex("020000000002020000000004") + b"\x08\x00" + bytes(46)


@pytest.mark.namespaces
def test_20_moves_lose_nothing_at_1000_packets_per_second_both_ways(start) -> None:
    with start(LabSpec.demo(static_arp=True)) as one:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        with MovingHost(one.lab, one.oneswitchd, "vm2", "out1", rate=1000) as host:
            for number in range(20):
                host.move(there_and_back(number))
            tour = host.finish()
    assert tour.moves == 20
    assert tour.sent > 20 * 2 * 100
    assert (tour.lost, tour.duplicated) == (0, 0), tour


def test_every_stage_delivers_both_ways(start) -> None:
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows("in_port=2,idle_timeout=60,actions=output:4", "in_port=4,actions=output:2")
        client = one.oneswitchd.client
        places = [("hypervisor", "vm2"), ("snic0", "pf0vf0")]
        client.move_port(2, "snic0", "pf0vf0", "prepared", None)
        for stage, arrives_at in (("prepared", 0), ("flipped", 1)):
            if stage == "flipped":
                client.continue_move(2, "flipped")
                wires.purge()  # until the datapaths' caches are updated, some packets take the old path
            wires.inject(("snic0", "p0"), FRAME)
            assert wires.settle() == {places[arrives_at]: [FRAME]}
            for place in places:  # the host may send on either interface meanwhile
                wires.inject(place, FRAME)
                assert wires.settle() == {("snic0", "p0"): [FRAME]}
        client.continue_move(2, "done")
        wires.purge()
        wires.inject(places[0], FRAME)
        assert wires.settle() == {}
        wires.inject(places[1], FRAME)
        assert wires.settle() == {("snic0", "p0"): [FRAME]}


def test_a_marker_goes_from_the_old_interface_to_the_new_one(start) -> None:
    """Only while the port moves: before and after, it is a packet like any other."""
    marker = bytes.fromhex("020000000002026e666d670088b5") + b"nfmg" + bytes(46)
    stages: tuple[Stage, ...] = ("prepared", "flipped", "done")
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        client, out = one.oneswitchd.client, ("snic0", "p0")
        places = [("hypervisor", "vm2"), ("snic0", "pf0vf0")]
        for old, new in (places, places[::-1]):
            client.move_port(2, *new, "prepared", None)
            for stage in stages:
                client.continue_move(2, stage)
                wires.purge()
                wires.inject(new if stage == "done" else old, marker)
                assert wires.settle() == {out if stage == "done" else new: [marker]}
                other = marker[:12] + b"\x88\xb6" + marker[14:]
                wires.inject(new, other)
                assert wires.settle() == {out: [other]}


def test_a_move_is_resumed_after_kill_9_at_every_stage(start) -> None:
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        places = [("hypervisor", "vm2"), ("snic0", "pf0vf0")]
        one.oneswitchd.client.move_port(2, "snic0", "pf0vf0", "prepared", None)
        stages: list[tuple[Stage, int]] = [("prepared", 0), ("flipped", 1)]
        for stage, arrives_at in stages:
            one.oneswitchd.client.continue_move(2, stage)
            one.oneswitchd.stop(signal.SIGKILL)
            with Oneswitchd(one.lab.server_toml) as again:
                again.wait_up()
                again.client.continue_move(2, stage)
                wires.purge()
                wires.inject(("snic0", "p0"), FRAME)
                assert wires.settle() == {places[arrives_at]: [FRAME]}
                for place in places:
                    wires.inject(place, FRAME)
                    assert wires.settle() == {("snic0", "p0"): [FRAME]}
                again.stop(signal.SIGKILL)
            one.oneswitchd = Oneswitchd(one.lab.server_toml)
            one.oneswitchd.wait_up()
        one.oneswitchd.client.continue_move(2, "done")
        one.oneswitchd.stop(signal.SIGKILL)
        with Oneswitchd(one.lab.server_toml) as again:
            again.wait_up()
            port = again.client.find_port("vm2")
            assert (port.switch, port.interface, port.move) == ("snic0", "pf0vf0", None)
            wires.purge()
            wires.inject(("snic0", "p0"), FRAME)
            assert wires.settle() == {places[1]: [FRAME]}


def test_an_aborted_move_leaves_no_trace(demo) -> None:
    demo.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2", "priority=1,actions=flood")

    def rules() -> list[list[str]]:
        dumps = []
        for switch in demo.lab.state.switches:
            for bridge in (switch.virt, switch.edge):
                lines = demo.ofctl("dump-flows", "--no-stats", "--sort", target=bridge).splitlines()
                floods = ("pkt_mark", "dl_vlan=40", "tun_id=0xff")
                dumps.append([line for line in lines if not any(each in line for each in floods)])
        return dumps

    before = rules()
    demo.oneswitchd.client.move_port(2, "snic0", "pf0vf0", "prepared", None)
    assert rules() != before
    demo.oneswitchd.client.abort_move(2)
    demo.ofctl("dump-flows")
    assert rules() == before


def test_counters_survive_a_move(start) -> None:
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        client = one.oneswitchd.client
        for switch, interface in (("snic0", "pf0vf0"), ("hypervisor", "vm2"), ("snic0", "pf0vf0")):
            for _ in range(3):
                one.exchange(wires, "vm2", FRAME)
                one.exchange(wires, "out1", FRAME)
            wires.purge()
            client.move_port(2, switch, interface, "done", 100)
        one.exchange(wires, "vm2", FRAME)
        wires.purge()
        flows = one.ofctl("dump-flows", "in_port=2")
        assert "n_packets=10," in flows
        ports = one.ofctl("dump-ports", "2")
        assert "rx pkts=10," in ports
        assert "tx pkts=9," in ports


def test_a_marker_goes_down_each_path_to_the_old_interface(start) -> None:
    markers = [FRAME[:-1] + bytes([number]) for number in range(3)]
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        client, snic = one.oneswitchd.client, one.lab.switch("snic0")
        places = [("hypervisor", "vm2"), ("snic0", "pf0vf0")]
        for old, new in (places, places[::-1]):
            with pytest.raises(ApiRefusedError, match="is not moving"):
                client.send_markers(2, *new, markers)
            client.move_port(2, *new, "flipped", None)
            assert client.send_markers(2, *new, markers) == (old[0], new[0])
            arrived = wires.settle()
            assert {place: sorted(frames) for place, frames in arrived.items()} == {old: markers[:2]}
            with pytest.raises(ApiRefusedError, match="a frame for each"):
                client.send_markers(2, *new, markers[:1])
            client.continue_move(2, "done")
        client.move_port(2, *places[1], "flipped", None)
        pid = next(each.processes["ovs-vswitchd"] for each in one.lab.state.switches if each.name == "snic0")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ApiRefusedError, match="switch snic0 is connected, but does not confirm"):
                client.send_markers(2, *places[1], markers)
        finally:
            os.kill(pid, signal.SIGCONT)
        snic.kill("ovs-vswitchd")
        settled(lambda: client.send_markers(2, *places[1], markers), {"switch-down"})
        assert client.send_markers(2, *places[1], markers) == ("hypervisor",), "a dead switch holds no packets"
