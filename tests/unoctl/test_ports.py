"""``unoctl port``: plumbing and oneswitchd together, above all their refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config import LinkConfig, OneswitchdConfig, ServerConfig, SwitchConfig
from server.errors import (
    ApiNoAnswerError,
    ApiRefusedError,
    ApiUnreachableError,
    ConfigError,
    PlumbingError,
    UsageError,
)
from server.oneswitchd.answers import VirtualPort
from server.oneswitchd.client import Client
from tests.server.fake_rest import Answer, FakeOneswitchd, problem
from unoctl import ports
from unoctl.render import Format, Output, Progress

SWITCHES = [
    SwitchConfig(name="hypervisor", virt="unix:/hv/virt", edge="unix:/hv/edge"),
    SwitchConfig(
        name="snic0",
        virt="unix:/s0/virt",
        edge="unix:/s0/edge",
        link=LinkConfig(hypervisor="pcie-snic0", local="pf0hpf"),
    ),
]


class FakePlumber:
    """Patch pairs and interfaces as sets; ``broken`` names a switch that fails."""

    def __init__(self) -> None:
        self.patches: set[tuple[str, int]] = set()
        self.attached: set[tuple[str, str]] = set()
        self.broken: str | None = None

    def make_patches(self, number: int) -> list[str]:
        made = [switch.name for switch in SWITCHES if (switch.name, number) not in self.patches]
        self.patches |= {(name, number) for name in made}
        return made

    def remove_patches(self, number: int, switches: list[str]) -> None:
        self.patches -= {(name, number) for name in switches}

    def attach(self, switch: str, interface: str) -> bool:
        if switch == self.broken:
            raise PlumbingError(f"switch {switch}: no such device")
        new = (switch, interface) not in self.attached
        self.attached.add((switch, interface))
        return new

    def detach(self, switch: str, interface: str) -> bool:
        there = (switch, interface) in self.attached
        self.attached.discard((switch, interface))
        return there


class World:
    """oneswitchd's REST, the plumbing, and the commands on them."""

    def __init__(self, fake: FakeOneswitchd, client: Client) -> None:
        self.fake = fake
        self.client = client
        self.plumber = FakePlumber()
        self.server = ServerConfig(
            oneswitchd=OneswitchdConfig(datapath_id="0" * 15 + "1", api=fake.api), switch=SWITCHES
        )
        self.said: list[str] = []

    @property
    def progress(self) -> Progress:
        said = self.said

        class Recorded(Progress):
            def __init__(self) -> None:
                pass

            def update(self, text: str) -> None:
                said.append(text)

        return Recorded()

    def add(self, number: int | None, switch: str, interface: str) -> None:
        ports.add(self.server, self.client, self.plumber, number, None, switch, interface, None, self.progress)

    def move(self, port: str, switch: str, interface: str, until: ports.Stage = "done", detach: bool = False) -> None:
        ports.move(self.server, self.client, self.plumber, port, switch, interface, until, None, detach, self.progress)


@pytest.fixture
def world(module_directory: Path) -> Iterator[World]:
    path = module_directory / "ports.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as fake, Client(fake.api) as client:
        fake.add(1, "vm1", "hypervisor", "vm1")
        yield World(fake, client)


@pytest.mark.parametrize(("text", "number"), [("auto", None), ("1", 1), ("65023", 65023)])
def test_numbers_are_parsed(text: str, number: int | None) -> None:
    assert ports.parse_number(text) == number


@pytest.mark.parametrize("text", ["0", "65024", "-1", "one", ""])
def test_malformed_numbers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected 1 to 65023, or auto"):
        ports.parse_number(text)


def test_a_new_port_is_plumbed_and_mapped(world: World) -> None:
    world.add(5, "snic0", "pf0vf0")
    assert world.fake.ports[5]["interface"] == "pf0vf0"
    assert world.plumber.patches == {("hypervisor", 5), ("snic0", 5)}
    assert world.plumber.attached == {("snic0", "pf0vf0")}


def test_auto_takes_the_lowest_free_number(world: World) -> None:
    world.add(None, "snic0", "a")
    world.add(None, "snic0", "b")
    assert sorted(world.fake.ports) == [1, 2, 3]


def test_auto_retries_if_the_number_was_taken_meanwhile(world: World) -> None:
    def taken_once(_: object) -> Answer:
        del world.fake.overrides["POST /v1/ports"]
        world.fake.add(2, "other", "hypervisor", "other")
        return problem(409, "port-number-taken", "port 2 exists")

    world.fake.overrides["POST /v1/ports"] = taken_once
    world.add(None, "snic0", "a")
    assert world.fake.ports[3]["interface"] == "a"
    assert world.plumber.patches == {("hypervisor", 3), ("snic0", 3)}


@pytest.mark.parametrize(
    ("number", "switch", "interface", "code"),
    [(1, "snic0", "a", "port-number-taken"), (2, "hypervisor", "vm1", "interface-taken")],
)
def test_taken_numbers_and_interfaces_are_refused_before_plumbing(
    world: World, number: int, switch: str, interface: str, code: str
) -> None:
    with pytest.raises(ApiRefusedError) as caught:
        world.add(number, switch, interface)
    assert caught.value.code == code
    assert (world.plumber.patches, world.plumber.attached) == (set(), set())


def test_a_refusal_undoes_exactly_the_new_plumbing(world: World) -> None:
    world.plumber.patches = {("hypervisor", 5)}
    world.fake.overrides["POST /v1/ports"] = lambda _: problem(409, "flow-ids-exhausted", "all 4086 are in use")
    with pytest.raises(ApiRefusedError, match="flow-ids-exhausted"):
        world.add(5, "snic0", "pf0vf0")
    assert world.plumber.patches == {("hypervisor", 5)}
    assert world.plumber.attached == set()


def test_failed_plumbing_is_undone(world: World) -> None:
    world.plumber.broken = "snic0"
    with pytest.raises(PlumbingError, match="no such device"):
        world.add(5, "snic0", "pf0vf0")
    assert world.plumber.patches == set()
    assert world.fake.asked == [("GET", "/v1/ports", None)]


@pytest.mark.parametrize("later", [ApiNoAnswerError("still no answer"), ApiUnreachableError("it has ended")])
def test_an_unanswered_request_leaves_the_plumbing(world: World, later: Exception) -> None:
    """The port may be in use already, so removing its plumbing could cut it off."""
    world.fake.overrides["POST /v1/ports"] = lambda _: (201, b"")
    world.fake.overrides["GET /v1/ports/5"] = lambda _: (200, b"")

    class Gone(Client):
        def add_port(self, *_: object, **__: object) -> VirtualPort:
            raise ApiNoAnswerError("no answer")

        def port(self, number: int) -> VirtualPort:
            raise later

    world.client = Gone(world.fake.api)
    with world.client, pytest.raises(ApiNoAnswerError, match="no answer"):
        world.add(5, "snic0", "pf0vf0")
    assert world.plumber.patches == {("hypervisor", 5), ("snic0", 5)}


def test_oneswitchd_may_notice_new_ports_late(world: World) -> None:
    answers = [problem(409, "patch-missing", "not yet"), problem(409, "interface-missing", "not yet")]

    def later(body: dict[str, str]) -> Answer:
        if answers:
            return answers.pop(0)
        del world.fake.overrides["POST /v1/ports"]
        return world.fake.answer("POST", "/v1/ports", body)

    world.fake.overrides["POST /v1/ports"] = later
    world.add(5, "snic0", "pf0vf0")
    assert 5 in world.fake.ports


def test_an_unknown_switch_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="unknown switch 'snic7'; expected one of hypervisor, snic0"):
        world.add(5, "snic7", "pf0vf0")


def test_a_move_attaches_and_keeps_the_old_interface(world: World) -> None:
    world.plumber.attached = {("hypervisor", "vm1")}
    world.move("vm1", "snic0", "pf0vf0")
    assert world.fake.ports[1]["switch"] == "snic0"
    assert world.plumber.attached == {("hypervisor", "vm1"), ("snic0", "pf0vf0")}


def test_a_move_can_detach_the_old_interface(world: World) -> None:
    world.plumber.attached = {("hypervisor", "vm1")}
    world.move("1", "snic0", "pf0vf0", detach=True)
    assert world.plumber.attached == {("snic0", "pf0vf0")}


def test_a_refused_move_detaches_the_new_interface(world: World) -> None:
    world.fake.overrides["POST /v1/ports/1/move"] = lambda _: problem(409, "move-in-progress", "it moves")
    with pytest.raises(ApiRefusedError, match="it moves"):
        world.move("vm1", "snic0", "pf0vf0")
    assert world.plumber.attached == set()


def test_a_waiting_move_keeps_its_new_interface(world: World) -> None:
    """The move continues by itself and then needs the interface."""
    world.fake.overrides["POST /v1/ports/1/move"] = lambda _: problem(409, "move-waits", "for edge of snic0")
    with pytest.raises(ApiRefusedError, match="for edge of snic0"):
        world.move("vm1", "snic0", "pf0vf0")
    assert world.plumber.attached == {("snic0", "pf0vf0")}


def test_a_port_moves_in_steps(world: World) -> None:
    world.plumber.attached = {("hypervisor", "vm1")}
    world.move("vm1", "snic0", "pf0vf0", until="prepared", detach=True)
    assert world.plumber.attached == {("hypervisor", "vm1"), ("snic0", "pf0vf0")}
    ports.continue_move(world.client, world.plumber, "vm1", "done", False, True, world.progress)
    assert world.plumber.attached == {("snic0", "pf0vf0")}


def test_an_aborted_move_can_detach_what_it_prepared(world: World) -> None:
    world.plumber.attached = {("hypervisor", "vm1")}
    world.move("vm1", "snic0", "pf0vf0", until="prepared")
    ports.abort_move(world.client, world.plumber, "vm1", detach=True)
    assert world.plumber.attached == {("hypervisor", "vm1")}


@pytest.mark.parametrize("detach", [False, True])
def test_deleting_a_port_removes_its_patches(world: World, detach: bool) -> None:
    world.add(5, "snic0", "pf0vf0")
    ports.delete(world.server, world.client, world.plumber, "5", detach)
    assert world.plumber.patches == set()
    assert world.plumber.attached == (set() if detach else {("snic0", "pf0vf0")})
    assert 5 not in world.fake.ports


def test_progress_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(Format.TABLE, pretty=False).progress("working") as progress:
        for text in ("one", "one", "two"):
            progress.update(text)
    assert capsys.readouterr().err.splitlines() == ["unoctl: one", "unoctl: two"]


def test_an_owned_port_requires_force(world: World) -> None:
    owned = world.fake.ports[1]
    owned["owner"] = "nfagent/acme/lb"

    def move(force: bool) -> None:
        ports.move(
            world.server, world.client, world.plumber, "1", "snic0", "x", "done", None, False, world.progress, force
        )

    with pytest.raises(ApiRefusedError, match="nfagent/acme/lb"):
        ports.delete(world.server, world.client, world.plumber, "vm1", True)
    with pytest.raises(ApiRefusedError, match="nfagent/acme/lb"):
        move(force=False)
    assert owned["interface"] == "vm1"
    assert not world.plumber.attached
    move(force=True)
    assert owned["interface"] == "x"
    ports.delete(world.server, world.client, world.plumber, "1", False, force=True)
    assert 1 not in world.fake.ports
