"""The switches' part in a migration: requests to each, and the effect of absent ones."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent.errors import WiringError
from nfagent.migrate import switching
from nfagent.migrate.switching import ServerSwitching, marker
from nfagent.model import InstancePort
from server.config import ServerConfig
from server.errors import ApiRefusedError, ApiUnreachableError, PlumbingError, ToolError
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


class FakeDaemon:
    """See `server.openvswitch.unixctl.Unixctl`; ``answers`` holds its answers by socket."""

    def __init__(self, path: Path, answer_s: float) -> None:
        self.path, self.answers = path, ANSWERS.get(str(path))
        LOG.append(f"connect {path} within {answer_s:g} s")
        if self.answers is None:
            raise ToolError(f"no daemon answers at {path}")

    def call(self, *words: str) -> str:
        LOG.append(" ".join((self.path.stem, *words)))
        assert self.answers is not None
        return self.answers(*words)

    def call_at_once(self, *commands: tuple[str, ...]) -> list[str]:
        LOG.append(f"{self.path.stem} " + " and ".join(" ".join(each) for each in commands))
        return [""] * len(commands)

    def begin(self, *commands: tuple[str, ...]) -> Callable[[], list[str]]:
        assert self.answers is not None
        LOG.append(f"{self.path.stem} begins " + " and ".join(" ".join(each) for each in commands))
        return lambda: [self.answers(*each) for each in commands if self.answers]

    def close(self) -> None:
        LOG.append(f"close {self.path.stem}")

    def close_when_answered(self) -> None:
        self.close()


LOG: list[str] = []
ANSWERS: dict[str, Callable[..., str]] = {}


def fine(*_: str) -> str:
    return ""


@pytest.fixture(autouse=True)
def daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.clear()
    ANSWERS.clear()
    ANSWERS.update({"/run/hub.ctl": fine, "/run/snic0.ctl": fine})
    monkeypatch.setattr(switching, "Unixctl", FakeDaemon)


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


# ---- current caches


def refused(*_: str) -> str:
    raise ToolError("the daemon hangs")


def test_caches_are_current_after_two_rounds_of_each_switch(
    switches: ServerSwitching, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(switching.time, "sleep", slept.append)
    monkeypatch.setattr(switching.random, "randbytes", lambda count: b"\x0a" * count)
    switches.quiesce([NIC, FAR])
    assert slept == [1.0]  # one switch has no control socket
    asked = ["hub fdb/add edge edge 0 02:6e:66:0a:0a:0a", "hub fdb/del edge 0 02:6e:66:0a:0a:0a and revalidator/wait"]
    assert [each for each in LOG if "hub" in each] == [
        *AT_ONCE,
        "close hub",
        "connect /run/hub.ctl within 2 s",
        *asked * 2,
        "close hub",
    ]
    assert "connect . within 2 s" in LOG
    LOG.clear()
    slept.clear()
    switches.quiesce([NIC, HUB])
    assert slept == []
    assert "connect . within 2 s" not in LOG, "a switch that no path crosses is not asked"

    def old(*words: str) -> str:
        if words[0] == "fdb/add":
            raise ToolError("there is no such command")
        return ""

    LOG.clear()
    ANSWERS["/run/hub.ctl"] = old
    switches.quiesce([NIC, HUB])
    asked_old = [AT_ONCE[1], *(asked[0], "hub revalidator/wait") * 2]
    assert [each for each in LOG if each.startswith("hub")] == asked_old
    ANSWERS["/run/hub.ctl"] = refused
    switches.quiesce([NIC, HUB])
    assert slept == [1.0]


AT_ONCE = ["connect /run/hub.ctl within 0.1 s", "hub begins upcall/show and dpif-netdev/pmd-stats-show"]
IN_USER_SPACE = "netdev@ovs-netdev:\n  flows         : (current 9) (avg 9)\n  dump duration : 1ms\n\n  5: (keys 0)\n"
ONE_THREAD = "main thread:\n  packets received: 9\n"


@pytest.mark.parametrize(
    ("shown", "statistics", "is_at_once"),
    [
        (IN_USER_SPACE, ONE_THREAD, True),
        (IN_USER_SPACE.replace("netdev@ovs-netdev", "dummy@ovs-dummy"), ONE_THREAD, True),
        (IN_USER_SPACE.replace("netdev@ovs-netdev", "system@ovs-system"), ONE_THREAD, False),
        (IN_USER_SPACE + IN_USER_SPACE.replace("netdev@ovs-netdev", "system@ovs-system"), ONE_THREAD, False),
        (IN_USER_SPACE, f"pmd thread numa_id 0 core_id 1:\n  packets received: 9\n{ONE_THREAD}", False),
        (IN_USER_SPACE.replace("1ms", "6ms"), ONE_THREAD, False),
    ],
)
def test_caches_of_a_switch_with_one_thread_are_made_current_at_once(
    switches: ServerSwitching, shown: str, statistics: str, is_at_once: bool
) -> None:
    """Other threads might be adding a flow by the old rules; many flows would stop the switch for long."""
    answers = {"upcall/show": shown, "dpif-netdev/pmd-stats-show": statistics}
    ANSWERS["/run/hub.ctl"] = lambda *words: answers.get(words[0], "")
    switches.quiesce([HUB, NIC])
    pauses = " and ".join(["version", *["revalidator/pause", "revalidator/resume"] * 2])
    assert (f"hub begins {pauses}" in LOG) == is_at_once
    assert any("fdb/add" in each for each in LOG if each.startswith("hub")) != is_at_once


def test_a_switch_that_cannot_pause_is_asked_for_its_rounds(switches: ServerSwitching) -> None:
    def told(*words: str) -> str:
        if words[0] == "revalidator/pause":
            raise ToolError("there is no such command")
        return {"upcall/show": IN_USER_SPACE, "dpif-netdev/pmd-stats-show": ONE_THREAD}.get(words[0], "")

    ANSWERS["/run/hub.ctl"] = told
    switches.quiesce([HUB, NIC])
    assert sum("fdb/add" in each for each in LOG if each.startswith("hub")) == 2


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
