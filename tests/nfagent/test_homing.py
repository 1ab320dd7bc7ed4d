"""A port reaches its interface despite other moves; in all tests but one with a simulated oneswitchd."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from lab import Lab, LabSpec
from lab.control_plane import Oneswitchd
from nfagent import homing
from nfagent.errors import WiringError
from nfagent.model import InstancePort
from nfagent.wiring import ServerWiring
from server.errors import ApiRefusedError
from server.oneswitchd.answers import PortMove, Stage, VirtualPort
from server.oneswitchd.client import Client
from tests.daemon.twin import ofctl

PORT = InstancePort(1000, "nf1000", "02:00:00:00:00:01")
HOME, GOAL, ELSEWHERE = ("hypervisor", "vf0"), ("hypervisor", "vf1"), ("snic0", "pf0vf0")
OWNER = "nfagent/acme/lb"
REST = {"flow_id": 1, "owner": OWNER, "executes_at": "hypervisor", "state": "up"}


class Switch:
    """One port, with the moves of oneswitchd: ``POST .../move``, ``.../continue``, ``DELETE .../move``."""

    def __init__(self, home: tuple[str, str], move: tuple[str, str] | None, stage: str) -> None:
        self.home, self.move, self.stage = home, move, stage
        self.asked: list[str] = []
        self.restarts = 0
        self.is_gathering = False
        """Whether a move of the interface changes the executor, too."""
        self.unseen: tuple[str, str] | None = None
        """A move that begins once the port has been read."""

    def port(self, number: int) -> VirtualPort:
        leaves = self.move != self.home
        executor = "snic0" if self.is_gathering or not leaves else "home"
        move = self.move and PortMove(
            switch=self.move[0],
            interface=self.move[1],
            stage=self.stage,
            executor=executor,
            old_paths=("hypervisor",) if leaves else (),
        )
        at = self.move if self.move is not None and self.stage in ("flipping", "flipped", "quiescing") else self.home
        values: dict[str, Any] = {"number": number, "name": "nf1000", "switch": at[0], "interface": at[1]}
        if self.unseen is not None:
            self.move, self.stage, self.unseen = self.unseen, "preparing", None
        return VirtualPort(**values, **REST, move=move)

    def move_port(
        self, number: int, switch: str, interface: str, until: str, grace_ms: int | None, force: bool, owner: str | None
    ) -> None:
        assert number == PORT.number
        assert owner == OWNER
        assert grace_ms
        if self.move is not None:
            raise ApiRefusedError(409, "move-in-progress", "it is being moved")
        self.asked.append(f"move {switch} {interface} {until}{' by force' if force else ''}")
        self.move, self.stage = (switch, interface), until
        self._end()

    def continue_move(self, number: int, until: str, *, force: bool = False) -> None:
        assert number == PORT.number
        assert self.move is not None
        self.asked.append(f"continue {until}{' by force' if force else ''}")
        self.stage = until
        self._end()

    def abort_move(self, number: int) -> None:
        assert number == PORT.number
        if self.stage not in ("preparing", "prepared"):
            raise ApiRefusedError(409, "move-past-abort", "it has flipped")
        self.asked.append("abort")
        self.move = None

    def _end(self) -> None:
        if self.stage == "done" and self.move is not None:
            self.home, self.move = self.move, None
            if self.restarts:
                self.restarts, self.move, self.stage = self.restarts - 1, ELSEWHERE, "flipped"


def client(switch: Switch) -> Client:
    return cast(Client, switch)


@pytest.mark.parametrize(
    ("home", "move", "stage", "asked"),
    [
        (HOME, None, "", ["move hypervisor vf1 done"]),
        (GOAL, None, "", []),
        (HOME, GOAL, "prepared", ["continue done"]),
        (HOME, GOAL, "flipped", ["continue done"]),
        (HOME, ELSEWHERE, "preparing", ["abort", "move hypervisor vf1 done by force"]),
        (HOME, ELSEWHERE, "prepared", ["abort", "move hypervisor vf1 done by force"]),
        (HOME, ELSEWHERE, "flipping", ["continue done by force", "move hypervisor vf1 done by force"]),
        (HOME, ELSEWHERE, "flipped", ["continue done by force", "move hypervisor vf1 done by force"]),
        (HOME, ELSEWHERE, "quiescing", ["continue done by force", "move hypervisor vf1 done by force"]),
        (GOAL, ELSEWHERE, "prepared", ["abort"]),
        (GOAL, ELSEWHERE, "flipped", ["continue done by force", "move hypervisor vf1 done by force"]),
        (GOAL, GOAL, "prepared", []),  # a change of its executor only
    ],
)
def test_a_port_gets_home_from_every_state_of_a_move(
    home: tuple[str, str], move: tuple[str, str] | None, stage: str, asked: list[str]
) -> None:
    switch = Switch(home, move, stage)
    homing.bring(client(switch), PORT, *GOAL, "done")
    assert switch.asked == asked
    assert switch.home == GOAL


@pytest.mark.parametrize(
    ("stage", "until", "asked"),
    [
        ("prepared", "flipped", ["continue flipped"]),
        ("flipping", "flipped", ["continue flipped"]),
        ("flipped", "done", ["continue done"]),
    ],
)
def test_a_move_that_changes_the_executor_too_is_continued(stage: str, until: Stage, asked: list[str]) -> None:
    switch = Switch(HOME, GOAL, stage)
    switch.is_gathering = True
    homing.bring(client(switch), PORT, *GOAL, until)
    assert switch.asked == asked


def test_leaving_undoes_a_move_that_changes_the_executor_too() -> None:
    switch = Switch(HOME, GOAL, "prepared")
    switch.is_gathering = True
    homing.leave(client(switch), PORT)
    assert switch.asked == ["abort"]


def test_a_move_away_from_where_all_ports_execute_ends(lab_dir: Path) -> None:
    spec = LabSpec.star(1, 1, mobile=True, substrate="dummy")
    here = [next((each.switch, each.name) for each in host.interfaces if each.switch == HOME[0]) for host in spec.hosts]
    goal = next((each.switch, each.name) for each in spec.hosts[0].interfaces if each.switch == ELSEWHERE[0])
    ports = tuple(
        dataclasses.replace(port, switch=at[0], interface=at[1]) for port, at in zip(spec.ports, here, strict=True)
    )
    spec = dataclasses.replace(spec, executor="home", ports=ports)
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client as real:
        oneswitchd.wait_up()
        ofctl("add-flow", oneswitchd.management, "actions=NORMAL")
        port = InstancePort(1, "nf1", "02:00:00:00:00:01")
        stages: tuple[Stage, ...] = ("prepared", "flipped", "done")
        for until in stages:
            homing.bring(real, port, *goal, until)
        at = real.port(1)
    assert (at.switch, at.interface, at.executor, at.move) == (*goal, HOME[0], None)


def test_a_move_that_begins_meanwhile_is_ended() -> None:
    switch = Switch(HOME, None, "")
    switch.unseen = ELSEWHERE
    homing.bring(client(switch), PORT, *GOAL, "done")
    assert switch.asked == ["abort", "move hypervisor vf1 done by force"]
    assert switch.home == GOAL


def test_ports_move_and_go_while_oneswitchd_gathers_them(lab_dir: Path) -> None:
    spec = dataclasses.replace(LabSpec.star(2, 1, mobile=True, substrate="dummy"), executor="home")
    goal = next((each.switch, each.name) for each in spec.hosts[1].interfaces if each.switch == "snic1")
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client as real:
        oneswitchd.wait_up()
        with ThreadPoolExecutor() as beside:
            added = beside.submit(ofctl, "add-flow", oneswitchd.management, "actions=NORMAL")
            # A machine that stalls may miss the moment; then both only meet gathered ports.
            while not (added.done() or all(real.port(number).move for number in (2, 3))):
                pass
            gone = beside.submit(
                ServerWiring(oneswitchd.config).disconnect, InstancePort(3, "nf3", "02:00:00:00:00:03")
            )
            homing.bring(real, InstancePort(2, "nf2", "02:00:00:00:00:02"), *goal, "done")
            for each in (added, gone):
                each.result()
        left = {port.number: (port.switch, port.interface) for port in real.ports()}
    assert left == {1: ("hypervisor", spec.ports[0].interface), 2: goal}


def test_a_port_that_is_repeatedly_moved_away_is_reported() -> None:
    switch = Switch(HOME, ELSEWHERE, "flipped")
    switch.restarts = 100
    with pytest.raises(WiringError, match="elsewhere"):
        homing.bring(client(switch), PORT, *GOAL, "done")


@pytest.mark.parametrize(
    ("move", "stage", "asked"),
    [
        (None, "", []),
        (ELSEWHERE, "prepared", ["abort"]),
        (ELSEWHERE, "flipped", ["continue done by force"]),
        (HOME, "prepared", []),
    ],
)
def test_leaving_a_port_ends_its_move_elsewhere(move: tuple[str, str] | None, stage: str, asked: list[str]) -> None:
    switch = Switch(HOME, move, stage)
    homing.leave(client(switch), PORT)
    assert switch.asked == asked
