"""oneswitchd, the switches and their databases stop and start in any order; packets keep flowing meanwhile."""

import itertools
import os
import select
import signal
import socket
from pathlib import Path

import pytest

from tests.recovery.conftest import Server, eventually

FRAME = bytes.fromhex("020000000003020000000001") + b"\x08\x00" + bytes(46)
RULES = (
    "table=0,in_port=1,cookie=1,actions=output:3",
    "table=0,in_port=3,cookie=2,actions=output:1",
    "table=0,priority=5,dl_vlan=7,cookie=3,idle_timeout=600,send_flow_rem,actions=goto_table:1",
    "table=1,cookie=4,actions=group:1",
    "table=2,cookie=5,actions=flood",
    "table=2,in_port=4,cookie=6,hard_timeout=600,actions=meter:1,write_actions(output:1),goto_table:3",
)


_HELLO, _PORT_DESC = bytes.fromhex("0400000800000001"), bytes.fromhex("0412001000000002000d000000000000")
_MOMENT_S = 0.2
"""Within the time that controllers wait for switches, but long enough for an answer."""


def fill(server: Server) -> None:
    """Install some of everything."""
    server.ofctl("add-group", "group_id=1,type=all,bucket=output:1,bucket=output:4")
    server.ofctl("add-group", "group_id=2,type=indirect,bucket=flood")
    server.ofctl("add-group", "group_id=3,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:4,output:4")
    server.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
    for rule in RULES:
        server.ofctl("add-flow", rule)


def test_packets_flow_while_oneswitchd_is_down(server: Server) -> None:
    fill(server)
    source, target = server.place("vm1"), server.place("nf1")
    with server.wires() as wires:
        for part in (server.kill, server.start):
            wires.inject(source, FRAME)
            assert wires.settle() == {target: [FRAME]}
            part("oneswitchd")
            wires.inject(source, FRAME)
            assert wires.settle() == {target: [FRAME]}
        server.oneswitchd.wait_up()
        wires.inject(source, FRAME)
        assert wires.settle() == {target: [FRAME]}
        wires.purge()
    assert "cookie=0x1, duration" in server.ofctl("dump-flows", "in_port=1")
    assert "n_packets=5," in server.ofctl("dump-flows", "in_port=1")


def test_a_restart_rewrites_nothing(server: Server) -> None:
    fill(server)
    server.ofctl("mod-port", "vm2", "no-packet-in")
    before = server.tables()
    flows = sorted(server.ofctl("dump-flows", "--no-stats").splitlines())
    ports = server.oneswitchd.client.ports()
    server.restart("oneswitchd")
    server.oneswitchd.wait_up()
    assert server.repairs() == 0
    assert server.tables() == before
    assert sorted(server.ofctl("dump-flows", "--no-stats").splitlines()) == flows
    assert server.oneswitchd.client.ports() == ports


def test_a_restart_rewrites_only_differences(server: Server) -> None:
    fill(server)
    before = server.tables()
    server.kill("oneswitchd")
    server.ofctl("del-flows", "in_port=1", target=server.bridge("hypervisor"))
    server.ofctl("add-flow", "cookie=99,in_port=2,actions=drop", target=server.bridge("snic0"))
    server.ofctl("mod-flows", "table=1,actions=output:1", target=server.bridge("snic0"))
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    assert server.tables() == before
    assert server.repairs() == 3


def test_controllers_wait_until_the_switches_have_told_their_ports(server: Server) -> None:
    """A controller may read the addresses of ports only once."""
    server.kill("oneswitchd")
    Path(str(server.oneswitchd.config.oneswitchd.journal)).unlink()
    pid = next(each.processes["ovs-vswitchd"] for each in server.lab.state.switches if each.name == "snic0")
    with socket.socket(socket.AF_UNIX) as controller:
        controller.settimeout(10.0)
        path = server.oneswitchd.management.removeprefix("unix:")
        os.kill(pid, signal.SIGSTOP)
        try:
            server.start("oneswitchd")
            assert eventually(lambda: controller.connect_ex(path) == 0)
            controller.sendall(_HELLO + _PORT_DESC)
            assert not select.select([controller], [], [], _MOMENT_S)[0], "it was admitted before"
        finally:
            os.kill(pid, signal.SIGCONT)
        received = b""
        while len(received) < 8 or len(received) < int.from_bytes(received[2:4]) + 16:
            received += controller.recv(65_536)
    hello = int.from_bytes(received[2:4])
    ports = received[hello + 16 :]
    addresses = [ports[at + 8 : at + 14] for at in range(0, len(ports), 64)]
    assert len(addresses) == len(server.oneswitchd.client.ports())
    assert bytes(6) not in addresses


def test_timeouts_continue_across_a_restart(server: Server) -> None:
    server.ofctl("add-flow", "cookie=1,actions=output:1")
    server.ofctl("add-flow", "cookie=2,in_port=1,hard_timeout=1,actions=output:1")
    server.ofctl("add-flow", "cookie=3,in_port=2,idle_timeout=1,actions=output:1")
    server.ofctl("add-flow", "cookie=4,in_port=3,hard_timeout=100,actions=output:1")
    server.kill("oneswitchd")
    hypervisor = server.bridge("hypervisor")
    assert eventually(lambda: server.cookies(hypervisor) == {1})
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    assert server.cookies() == {1, 4}
    assert server.cookies(hypervisor) == {1}


PARTS = ("oneswitchd", "vswitchd hypervisor", "vswitchd snic0", "ovsdb-server snic0")
ORDERS = list(itertools.permutations(PARTS))


@pytest.mark.parametrize("number", range(0, len(ORDERS), 5))
def test_parts_stop_and_start_in_any_order(server: Server, number: int) -> None:
    fill(server)
    before = server.tables()
    for part in ORDERS[number]:
        server.kill(part)
    # A vswitchd starts only with its database.
    for part in sorted(ORDERS[-1 - number // 2], key=lambda part: part == "vswitchd snic0"):
        server.start(part)
    server.oneswitchd.wait_up()
    server.ofctl("dump-flows")  # earlier messages have reached the switches
    assert server.tables() == before
    source, target = server.place("vm1"), server.place("nf1")
    with server.wires() as wires:
        wires.inject(source, FRAME)
        assert wires.settle() == {target: [FRAME]}


def test_a_damaged_journal_is_refused(server: Server) -> None:
    fill(server)
    server.kill("oneswitchd")
    journal = server.lab.directory / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:300] + b"?" + whole[301:])
    server.start("oneswitchd")
    assert eventually(lambda: "damaged at byte" in server.oneswitchd.log.read_text())
    server.stop()
    # A kill leaves a file that ends in the middle of a record.
    journal.write_bytes(whole[:-3])
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    assert "truncated" in server.oneswitchd.log.read_text()
