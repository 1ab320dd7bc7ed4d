"""State shared by all ports behaves as on one bridge: at their one executor, or where they are gathered for it."""

import dataclasses
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import Lab, LabSpec
from lab.control_plane import Oneswitchd, find_installed
from lab.unixctl import unixctl
from lab.wires import Place, Wires
from server.errors import ApiRefusedError
from server.names import HOME
from unoctl.trace.packet_text import to_bytes

# Ports 1 to 3: on the hypervisor, on snic0, on snic1.
SPEC = dataclasses.replace(LabSpec.star(2, 1, substrate="dummy"), executor="snic0")
REFERENCE = SPEC.reference()


@dataclass
class Twin:
    """A server whose ports all execute at one sNIC, and one bridge with the same ports."""

    daemon: Oneswitchd
    labs: tuple[Lab, Lab]
    wires: tuple[Wires, Wires]

    @property
    def targets(self) -> tuple[str, str]:
        return self.daemon.management, self.labs[1].state.switches[0].virt

    def ofctl(self, command: str, *arguments: str) -> tuple[str, str]:
        """Run the same ovs-ofctl command on both; return its answers."""
        ours, reference = (_ofctl(command, target, *arguments) for target in self.targets)
        return ours, reference

    def send(self, port: int, frame: bytes, count: int = 1) -> dict[int, list[bytes]]:
        """Inject a frame at the same port of both; return the frames that left each port, which must be equal."""
        ours, reference = (
            _sent(spec, wires, port, frame, count) for spec, wires in zip((SPEC, REFERENCE), self.wires, strict=True)
        )
        assert ours == reference
        return ours


def _ofctl(command: str, target: str, *arguments: str) -> str:
    argv = ["ovs-ofctl", "-O", "OpenFlow13", command, target, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _sent(spec: LabSpec, wires: Wires, port: int, frame: bytes, count: int) -> dict[int, list[bytes]]:
    places: dict[Place, int] = {(each.switch, each.interface): each.number for each in spec.ports}
    into = next(place for place, number in places.items() if number == port)
    for _ in range(count):
        wires.inject(into, frame)
    wires.purge()
    return {places[place]: frames for place, frames in wires.settle().items()}


@pytest.fixture
def twin(lab_dir: Path) -> Iterator[Twin]:
    yield from _twin(SPEC)


@pytest.fixture
def apart(lab_dir: Path) -> Iterator[Twin]:
    """Return a server whose ports have executors of their own, and one bridge."""
    yield from _twin(dataclasses.replace(SPEC, executor=HOME))


@pytest.fixture
def refusing(lab_dir: Path) -> Iterator[Twin]:
    """Return a server that gathers no ports, and one bridge."""
    yield from _twin(SPEC, "refuse")


def _twin(spec: LabSpec, stateful: str = "gather") -> Iterator[Twin]:
    with ExitStack() as stack:
        labs = (stack.enter_context(Lab(spec).start()), stack.enter_context(Lab(REFERENCE).start()))
        toml = labs[0].server_toml
        toml.write_text(toml.read_text().replace('stateful = "gather"', f'stateful = "{stateful}"'))
        daemon = stack.enter_context(Oneswitchd(labs[0].server_toml))
        stack.enter_context(daemon.client)
        daemon.wait_up()
        wires = (stack.enter_context(labs[0].wires()), stack.enter_context(labs[1].wires()))
        yield Twin(daemon, labs, wires)


def frame(source: int, target: int, more: str = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,udp_src=4000,udp_dst=53") -> bytes:
    return to_bytes(f"dl_src=02:00:00:00:00:0{source},dl_dst=02:00:00:00:00:0{target},{more}")


def test_a_meter_is_shared(twin: Twin) -> None:
    """With stopped clocks, exactly the burst passes from all ports together."""
    for lab in twin.labs:
        for switch in lab.state.switches:
            unixctl(Path(switch.control), "time/stop")
    twin.ofctl("add-meter", "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=5")
    twin.ofctl("add-flow", "in_port=1,actions=meter:1,2")
    twin.ofctl("add-flow", "in_port=3,actions=meter:1,2")
    through = [len(twin.send(port, frame(port, 2), 4).get(2, [])) for port in (1, 3, 1)]
    assert sum(through) < 12, "the meter let everything through"
    ours, reference = (text.partition("0:")[2].split() for text in twin.ofctl("meter-stats", "meter=1"))
    assert ours == reference
    assert ours


def test_rules_with_normal_gather_the_ports_and_learn_as_one_bridge(apart: Twin) -> None:
    """Ports 1 to 3 are on three switches. A rule with NORMAL is in force when its barrier is answered."""
    client = apart.daemon.client
    assert [port.executing for port in client.ports()] == ["hypervisor", "snic0", "snic1"]
    apart.ofctl("add-flow", "actions=NORMAL")
    assert {port.executing for port in client.ports()} == {"hypervisor"}
    gathered = client.status().virtual.gathered
    assert gathered is not None
    assert (gathered.at, gathered.ports) == ("hypervisor", (2, 3))
    for source, target in [(1, 2), (2, 1), (3, 1), (1, 3), (2, 3), (3, 2)]:
        assert apart.send(source, frame(source, target))


def test_connections_are_tracked_for_ports_of_several_switches(apart: Twin) -> None:
    for rule in (
        "priority=2,udp,in_port=1,actions=ct(commit),3",
        "priority=2,udp,in_port=3,ct_state=-trk,actions=ct(table=1)",
        "table=1,udp,ct_state=+est,actions=1",
    ):
        apart.ofctl("add-flow", rule)
    back = frame(3, 1, "udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,udp_src=53,udp_dst=4000")
    assert apart.send(3, back) == {}
    assert list(apart.send(1, frame(1, 3))) == [3]
    assert list(apart.send(3, back)) == [1]


def test_gathered_ports_survive_a_restart_and_refuse_to_part(apart: Twin) -> None:
    apart.ofctl("add-flow", "actions=NORMAL")
    apart.daemon.stop(signal.SIGKILL)
    with Oneswitchd(apart.labs[0].server_toml) as daemon, daemon.client as client:
        daemon.wait_up()
        assert {port.executing for port in client.ports()} == {"hypervisor"}
        with pytest.raises(ApiRefusedError) as refused:
            client.change_executor(2, HOME, "done", 0)
        assert refused.value.code == "stateful-rules"


def test_a_configuration_that_splits_state_is_refused(refusing: Twin) -> None:
    refusing.ofctl("add-flow", "actions=NORMAL")
    client = refusing.daemon.client
    with pytest.raises(ApiRefusedError) as refused:
        client.change_executor(1, HOME, "done", 0)
    assert refused.value.code == "stateful-rules"
    refusing.ofctl("del-flows")
    assert client.change_executor(1, HOME, "done", 0).executing == "hypervisor"
    with pytest.raises(AssertionError, match="OFPBAC_BAD_OUT_PORT"):
        _ofctl("add-flow", refusing.daemon.management, "actions=NORMAL")
    with pytest.raises(AssertionError, match="OFPBAC_BAD"):
        _ofctl("add-flow", refusing.daemon.management, "tcp,actions=ct(commit)")
    # A journal that contradicts the configuration is refused.
    client.change_executor(1, "snic0", "done", 0)
    _ofctl("add-flow", refusing.daemon.management, "actions=NORMAL")
    refusing.daemon.stop()
    lab = refusing.labs[0]
    state = lab.server_toml.with_name("ports.json")
    state.write_text(state.read_text().replace('"executor": "snic0"', f'"executor": "{HOME}"'))
    found = subprocess.run(
        [find_installed("oneswitchd"), "--config", lab.server_toml, "--check"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.returncode == 1
    assert "rules with NORMAL or ct" in found.stderr
