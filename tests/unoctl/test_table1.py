"""UNO's Table 1: both of its virtual rules on real switches.

An emulated server (hypervisor and sNIC) with oneswitchd, and one Open vSwitch bridge with the same ports, get the same
virtual rules. For each packet three answers must agree, port by port and byte by byte: its exits from the bridge, its
exits from the server, and those predicted by ``unoctl trace``. The flow-id that the trace shows on
the PCIe link, in a tag or beside the packet, has to be DELIVER of the remote port.
"""

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.control_plane import Oneswitchd, find_installed
from lab.errors import LabError
from lab.programs import patched_ovs
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Place
from server.names import HOME
from unoctl.cli import app
from unoctl.trace.packet_text import to_bytes

# V1 and V2 of the paper are ports 1 and 2, on the hypervisor; V3 and V4 are 3 and 4, on the sNIC.
SPEC = LabSpec.star(1, 2, substrate="dummy")
REFERENCE = SPEC.reference()
FRAME = "tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src={source},nw_dst=10.0.0.9,tcp_src=4000,tcp_dst=80"
RULE_1 = ("in_port=1,actions=output:3", "in_port=2,actions=output:4")
RULE_2 = ("in_port=1,ip,nw_src=10.0.0.1,actions=set_field:1.1.1.1->ip_src,output:2,output:4",)


@dataclass(frozen=True)
class Both:
    """The server with its oneswitchd, and the one bridge."""

    server: Lab
    oneswitchd: Oneswitchd
    reference: Lab

    def install(self, rules: tuple[str, ...]) -> None:
        """Install exactly these virtual rules on both."""
        for target in (self.oneswitchd.management, self.reference.state.switches[0].virt):
            for command in (["del-flows", target], ["add-flows", target, "-"]):
                subprocess.run(
                    ["ovs-ofctl", "-O", "OpenFlow13", *command], input="\n".join(rules), text=True, check=True
                )
        # Cached flows of previous rules handle packets for some more time.
        for lab in (self.server, self.reference):
            for switch in lab.state.switches:
                lab.switch(switch.name).appctl("revalidator/purge")


@pytest.fixture(
    scope="module",
    params=[(HOME, "vlan"), ("snic0", "vlan"), ("hypervisor", "vlan"), (HOME, "pcie"), ("snic0", "pcie")],
    ids="-".join,
)
def both(request: pytest.FixtureRequest, module_lab_dir: Path) -> Iterator[Both]:
    """Start both, with every port executed at its home, or all at one switch, over a link of each type."""
    executor, link = request.param
    ovs = patched_ovs() if link == "pcie" else None
    if link == "pcie" and ovs is None:
        pytest.skip("no Open vSwitch with ports of type pcie: `make ovs` builds one")
    spec = dataclasses.replace(SPEC.with_links(link), executor=executor, ovs=ovs)
    try:
        find_installed("oneswitchd")
    except LabError as error:
        pytest.skip(str(error))
    with (
        Lab(REFERENCE).start() as reference,
        Lab(spec).start() as server,
        Oneswitchd(server.server_toml) as oneswitchd,
    ):
        oneswitchd.wait_up()
        yield Both(server, oneswitchd, reference)


def left(lab: Lab, spec: LabSpec, number: int, frame: bytes) -> dict[int, list[bytes]]:
    """Inject a frame into a port; return what each port sends, by port number."""
    places: dict[int, Place] = {port.number: (port.switch, port.interface) for port in spec.ports}
    with lab.wires() as wires:
        wires.inject(places[number], frame)
        frames = wires.settle()
    return {port: frames[place] for port, place in places.items() if place in frames}


def trace(config: Path, number: int, frame: bytes) -> dict[str, Any]:
    command = ["--config", str(config), "--format=json", "trace", str(number), frame.hex()]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def traced_exits(record: dict[str, Any]) -> dict[int, list[bytes]]:
    sent: dict[int, list[bytes]] = {}
    for item in record["exits"]:
        assert item["conditions"] == []
        sent.setdefault(item["port"], []).append(bytes.fromhex(item["hex"]))
    return sent


def crossings(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return each crossing of the link in order."""
    if record.get("type") == "pcie":
        yield record
    for inner in record.values():
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict):
                yield from crossings(item)


def flow_ids(record: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return PCIe port, flow-id and its meaning of each crossing of the link."""
    found = ((crossing["interface"], crossing["flow_id"]) for crossing in crossings(record["stage"]))
    return [(port, told.get("vid") or told.get("tun_id"), told["meaning"]) for port, told in found]


@pytest.mark.parametrize(
    ("rules", "number", "source", "ports"),
    [
        pytest.param(RULE_1, 1, "10.0.0.1", {3}, id="rule-1-V1-to-V3"),
        pytest.param(RULE_1, 2, "10.0.0.1", {4}, id="rule-1-V2-to-V4-same-link"),
        pytest.param(RULE_2, 1, "10.0.0.1", {2, 4}, id="rule-2-one-local-one-remote"),
        pytest.param(RULE_2, 1, "10.0.0.7", set(), id="rule-2-no-match"),
        pytest.param((*RULE_2, "priority=1,in_port=1,actions=output:3"), 1, "10.0.0.7", {3}, id="both-together"),
    ],
)
def test_server_and_bridge_send_the_same_bytes_from_the_same_ports(
    both: Both, rules: tuple[str, ...], number: int, source: str, ports: set[int]
) -> None:
    both.install(rules)
    frame = to_bytes(FRAME.format(source=source))
    expected = left(both.reference, REFERENCE, number, frame)
    assert set(expected) == ports
    assert left(both.server, SPEC, number, frame) == expected
    record = trace(both.server.server_toml, number, frame)
    assert traced_exits(record) == expected
    mapped = both.oneswitchd.client.ports()
    entered = mapped[number - 1]
    wanted = []
    if entered.executing == "snic0":
        wanted.append(("pcie-snic0", entered.ingress_id, f"INGRESS({entered.name})"))
    out = "pf0hpf" if entered.executing == "snic0" else "pcie-snic0"
    remote = [port for port in mapped if port.number in ports and port.switch != entered.executing]
    assert flow_ids(record) == wanted + [(out, port.flow_id, f"DELIVER({port.name})") for port in remote]


def test_packets_on_the_link_already_have_the_rewritten_source(both: Both) -> None:
    """The pipeline runs once, at the hypervisor: the finished packet crosses the link, with the flow-id."""
    if both.oneswitchd.client.port(1).executing != "hypervisor":
        pytest.skip("the pipeline runs at the sNIC")
    both.install(RULE_2)
    frame = to_bytes(FRAME.format(source="10.0.0.1"))
    record = trace(both.server.server_toml, 1, frame)
    (crossing,) = crossings(record["stage"])
    (remote,) = traced_exits(record)[4]
    tag = b""
    if both.server.state.links[0].type == "vlan":
        tag = b"\x81\x00" + crossing["flow_id"]["vid"].to_bytes(2, "big")
    assert bytes.fromhex(crossing["hex"]) == remote[:12] + tag + remote[12:]
    assert remote[26:30] == bytes((1, 1, 1, 1))
