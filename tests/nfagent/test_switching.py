"""The switches' part in a migration: requests to each, and the effect of absent ones."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent.errors import WiringError
from nfagent.migrate import switching
from nfagent.migrate.switching import ServerSwitching, marker
from nfagent.model import InstancePort
from server.config import ServerConfig, SwitchConfig
from server.errors import ApiRefusedError, ApiUnreachableError, PlumbingError
from server.oneswitchd.answers import BridgeState, PortMove, SwitchState, VirtualPort

CONFIG = ServerConfig.parse("""
[oneswitchd]
datapath_id = "00000000000000a1"
[oneswitchd.tls]
private_key = "/key"
certificate = "/certificate"
ca_certificate = "/ca"
[[switch]]
name = "hypervisor"
virt = "unix:/virt.mgmt"
edge = "unix:/edge.mgmt"
control = "/run/hub.ctl"
[[switch]]
name = "snic0"
virt = "tcp:192.0.2.1:1"
edge = "tcp:192.0.2.1:2"
control = "/run/snic0.ctl"
link = { hypervisor = "pcie-snic0", local = "pf0hpf" }
[[switch]]
name = "snic1"
virt = "ssl:192.0.2.2:1"
edge = "ssl:192.0.2.2:2"
link = { hypervisor = "pcie-snic1", local = "pf1hpf" }
""")
HUB, NIC, FAR = "hypervisor", "snic0", "snic1"
PORT = InstancePort(1000, "nf1000", "02:00:00:00:00:01")
SECRET = "5e" * 32


class FakeWiring:
    """See `nfagent.wiring.ServerWiring`; its client records requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.states: dict[str, tuple[str, str]] = dict.fromkeys((HUB, NIC, FAR), ("up", "up"))
        self.error: Exception | None = None
        self.at = VirtualPort(number=1000, name="nf1000", switch=HUB, interface="vf0", owner="nfagent/acme/lb")
        self.paths = 2

    def attach(self, location: str, interface: str) -> None:
        self.asked.append(f"attach {interface} at {location}")

    def client(self) -> "FakeWiring":
        return self

    def __enter__(self) -> "FakeWiring":
        return self

    def __exit__(self, *_: object) -> None:
        self.asked.append("closed")

    def port(self, number: int) -> VirtualPort:
        if self.error is not None:
            raise self.error
        self.asked.append(f"port {number}")
        return self.at

    def send_markers(self, number: int, switch: str, interface: str, frames: Sequence[bytes], owner: str) -> list[str]:
        if self.error is not None:
            raise self.error
        self.asked.append(f"{number} to {interface} of {switch} for {owner}: {' '.join(each.hex() for each in frames)}")
        return ["hypervisor"] * self.paths

    def close(self) -> None:
        self.asked.append("closed")

    def status(self) -> Any:
        if self.error is not None:
            raise self.error

        def bridge(state: str) -> BridgeState:
            return BridgeState(target="x", state=state)

        switches = [
            SwitchState(name=name, virt=bridge(virt), edge=bridge(edge)) for name, (virt, edge) in self.states.items()
        ]
        return SimpleNamespace(switches=switches)


@pytest.fixture
def wiring() -> FakeWiring:
    return FakeWiring()


@pytest.fixture
def switches(wiring: FakeWiring) -> ServerSwitching:
    made: Any = wiring
    return ServerSwitching(CONFIG, made)


# ---- switches on the path


def test_only_bridges_without_tls_are_watched(switches: ServerSwitching) -> None:
    assert switches.bridges([NIC, HUB]) == ["tcp:192.0.2.1:2", "unix:/edge.mgmt"]
    assert switches.bridges([FAR, NIC]) == ["tcp:192.0.2.1:2", "unix:/edge.mgmt"]
    assert switches.bridges([FAR]) == ["unix:/edge.mgmt"]


def test_bridges_of_switches_with_one_thread_are_known(
    switches: ServerSwitching, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def single_threaded(those: Sequence[SwitchConfig]) -> set[str]:
        asked.extend(each.name for each in those)
        return {NIC}

    monkeypatch.setattr("nfagent.migrate.switching.single_threaded", single_threaded)
    assert switches.single_threaded([NIC, HUB]) == {"tcp:192.0.2.1:2"}
    assert sorted(asked) == [HUB, NIC]


@pytest.mark.parametrize(
    ("name", "states", "are_in_step"),
    [
        (NIC, ("up", "up"), True),
        (NIC, ("down", "up"), False),
        (NIC, ("up", "syncing"), False),
        (HUB, ("up", "down"), False),
        (FAR, ("down", "down"), True),
    ],
)
def test_switches_on_the_path_must_be_up(
    switches: ServerSwitching, wiring: FakeWiring, name: str, states: tuple[str, str], are_in_step: bool
) -> None:
    wiring.states[name] = states
    assert switches.are_in_step([NIC, HUB], []) is are_in_step
    wiring.error = ApiUnreachableError("nothing listens")
    assert switches.are_in_step([NIC, HUB], [])


def test_the_switches_have_to_lead_to_the_interface_too(switches: ServerSwitching, wiring: FakeWiring) -> None:
    """oneswitchd undoes a prepared move when its switch goes away; then the new process sends into the void."""
    assert switches.are_in_step([NIC, HUB], [(PORT, (HUB, "vf0"))])
    assert not switches.are_in_step([NIC, HUB], [(PORT, (NIC, "vf1"))])
    wiring.at = wiring.at.model_copy(update={"move": PortMove(switch=NIC, interface="vf1", stage="prepared")})
    assert switches.are_in_step([NIC, HUB], [(PORT, (NIC, "vf1"))])


# ---- moves of ports


def test_a_port_moves_in_stages(switches: ServerSwitching, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "bring", lambda client, *words: client.asked.append(words))
    monkeypatch.setattr(switching, "leave", lambda client, port: client.asked.append(("leave", port)))
    asked: list[Any] = wiring.asked
    switches.prepare(PORT, NIC, "pf0vf0")
    assert asked == ["attach pf0vf0 at snic0", (PORT, NIC, "pf0vf0", "prepared"), "closed"]
    asked.clear()
    switches.flip(PORT, NIC, "pf0vf0")
    switches.finish(PORT, NIC, "pf0vf0")
    assert asked == [(PORT, NIC, "pf0vf0", "flipped"), "closed", (PORT, NIC, "pf0vf0", "done"), "closed"]
    asked.clear()
    switches.abort(PORT)
    assert asked == [("leave", PORT), "closed"]


@pytest.mark.parametrize("error", [ApiUnreachableError("nothing listens"), PlumbingError("nothing listens")])
def test_errors_name_the_port(switches: ServerSwitching, wiring: FakeWiring, error: Exception) -> None:
    wiring.error = error
    for act in (
        lambda: switches.flip(PORT, NIC, "pf0vf0"),
        lambda: switches.abort(PORT),
        lambda: switches.marking([(PORT, (NIC, "pf0vf0"))], 3, SECRET).send(0),
    ):
        with pytest.raises(WiringError, match=r"^port 1000 \(nf1000\): nothing listens$"):
            act()


# ---- markers


def test_oneswitchd_sends_a_marker_down_each_old_path(switches: ServerSwitching, wiring: FakeWiring) -> None:
    second = InstancePort(1001, "nf1001", "02:00:00:00:00:02")
    marking = switches.marking([(PORT, (NIC, "pf0vf0")), (second, (NIC, "pf0vf1"))], 3, SECRET)

    def frames(port: InstancePort, first: int) -> str:
        return " ".join(marker(port.mac, SECRET, 3, number).hex() for number in range(first, first + 3))

    def asked(first: int) -> list[str]:
        return [
            f"1000 to pf0vf0 of snic0 for nfagent/acme/lb: {frames(PORT, first)}",
            f"1001 to pf0vf1 of snic0 for nfagent/acme/lb: {frames(second, first + wiring.paths)}",
        ]

    assert marking.paths == 0, "oneswitchd does not tell"
    assert marking.send(40) == 4
    one, other = asked(40)
    assert wiring.asked == ["port 1000", "port 1001", one, other]
    wiring.asked.clear()
    wiring.paths = 3
    assert marking.send(44) == 6
    assert wiring.asked == asked(44), "the owner of a port is asked once"
    wiring.asked.clear()
    marking.close()
    assert wiring.asked == ["closed"]


def test_not_more_markers_are_sent_than_are_waited_for(switches: ServerSwitching, wiring: FakeWiring) -> None:
    move = PortMove(switch=NIC, interface="vf1", stage="prepared", old_paths=(HUB, NIC))
    wiring.at = wiring.at.model_copy(update={"move": move})
    marking = switches.marking([(PORT, (NIC, "vf1"))], 3, SECRET)
    assert marking.paths == 2
    assert marking.send(7) == 2
    frames = " ".join(marker(PORT.mac, SECRET, 3, number).hex() for number in (7, 8))
    assert wiring.asked[-1] == f"1000 to vf1 of snic0 for nfagent/acme/lb: {frames}"


def test_a_switch_that_refuses_its_marker_is_named(switches: ServerSwitching, wiring: FakeWiring) -> None:
    marking = switches.marking([(PORT, (NIC, "pf0vf0"))], 3, SECRET)
    wiring.error = ApiRefusedError(409, "switch-silent", "switch snic0 does not confirm")
    with pytest.raises(WiringError, match=r"^port 1000 \(nf1000\): .* switch snic0 does not confirm$"):
        marking.send(0)
    wiring.error = None
    assert marking.send(0) == 2


def test_both_sides_agree_on_the_frame_of_a_marker() -> None:
    frame = marker("02:00:00:00:00:01", SECRET, 3, 41)
    assert frame.hex() == FRAME
    assert len(frame) == 64


FRAME = (
    "020000000001"  # to the port
    "026e666d6700"  # from the agent
    "88b5"
    "6e666d67"
    "0000000000000003"  # the epoch
    "00000029"  # the path
    "d7d655f0ff82da6d7c21b1550ebef3f109011547c5930d87878cc937f19e8872"
    "0000"
)


def test_the_switches_on_the_way_are_waited_for(switches: ServerSwitching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "SwitchQuiescing", lambda found: [each.name for each in found])
    ways: Any = switches.quiescing([NIC, FAR]), switches.quiescing([HUB, NIC])
    assert ways == ([NIC, FAR, HUB], [HUB, NIC])


def test_a_flip_of_prepared_ports_is_awaited(
    switches: ServerSwitching, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "bring", lambda *_: None)
    now, slept = [5.0], []
    monkeypatch.setattr(switching.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(switching.time, "sleep", slept.append)
    switches.await_settled()
    switches.prepare(PORT, NIC, "pf0vf0")
    now[0] += 0.02
    switches.await_settled()
    now[0] += 3.0
    switches.await_settled()
    assert slept == pytest.approx([0.0, 0.08, 0.0])
    assert wiring.asked == ["attach pf0vf0 at snic0", "closed"]
