"""More ports than VLAN tags can name, over a PCIe link that carries flow-ids beside the packets."""

import dataclasses
import subprocess

import pytest

from lab.control_plane import Oneswitchd
from lab.programs import patched_ovs
from lab.server import Lab
from lab.spec import LabSpec

PATCHED = patched_ovs()
TAGS = 4080
FRAME = bytes.fromhex("020000000003 020000000001 0800".replace(" ", "")).ljust(60, b"\0")


def absent(number: int) -> str:
    """Return a port in server.toml whose interface does not exist."""
    return f'[[port]]\nnumber = {number}\nswitch = "snic0"\ninterface = "absent{number}"\n\n'


@pytest.mark.skipif(PATCHED is None, reason="`make ovs` builds an Open vSwitch with ports of type pcie")
@pytest.mark.usefixtures("lab_dir")
def test_packets_reach_ports_beyond_the_last_tag() -> None:
    spec = dataclasses.replace(LabSpec.star(1, 2, substrate="dummy"), ovs=PATCHED)
    with Lab(spec).start() as lab:
        before, first, rest = lab.server_toml.read_text().partition("[[port]]")
        others = "".join(map(absent, range(10_000, 10_000 + TAGS)))
        lab.server_toml.write_text(before + others + first + rest)
        with Oneswitchd(lab.server_toml) as oneswitchd, lab.wires() as wires:
            oneswitchd.wait_up(timeout_s=120.0)
            ids = [oneswitchd.client.port(number).flow_id for number in (1, 2, 3, 4)]
            assert ids == [4096, 4097, 4098, 4099]
            rules = "in_port=1,actions=output:3\nin_port=3,actions=output:1,output:2\nin_port=2,actions=flood"
            command = ["ovs-ofctl", "-OOpenFlow13", "add-flows", oneswitchd.management, "-"]
            subprocess.run(command, input=rules, text=True, check=True)
            vm1, vm2, nf3, nf4 = [(port.switch, port.interface) for port in spec.ports]
            for at, reached in ((vm1, {nf3}), (nf3, {vm1, vm2}), (vm2, {vm1, nf3, nf4})):
                wires.inject(at, FRAME)
                assert wires.settle() == {place: [FRAME] for place in reached}
