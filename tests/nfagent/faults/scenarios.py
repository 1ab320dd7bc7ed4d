"""Scenarios in which faults happen."""

from collections.abc import Callable
from dataclasses import dataclass

from nfagent.desired import Amendment
from tests.nfagent.faults.switches import HUB, NIC
from tests.nfagent.faults.world import ADMIN, World

Drive = Callable[[], object]


@dataclass(frozen=True)
class Scenario:
    """A scenario for faults.

    Attributes:
        begin: brings a world to the point where faults begin; may complete the work itself.
        copies: copy state although it could be handed over.
        remote: the smart NIC is a separate machine.
        outcomes: of its migrations without a fault.
    """

    begin: Callable[[World, Drive], None]
    copies: bool = False
    remote: bool = False
    outcomes: tuple[str, ...] = ()


def _move(source: str, target: str, kind: str = "nf") -> Callable[[World, Drive], None]:
    def begin(world: World, drive: Drive) -> None:
        _run_at(world, drive, source, kind)
        world.migrate(target)

    return begin


def _run_at(world: World, drive: Drive, location: str = HUB, kind: str = "nf") -> None:
    world.create(kind, location)
    drive()


def _turn_back(world: World, drive: Drive) -> None:
    _move(HUB, NIC)(world, drive)
    world.machines.refused.add("hold")


def _start(world: World, _: Drive) -> None:
    world.create("nf", NIC)
    world.is_excused = True  # a first process that is not ready yet is abandoned


def _delete(world: World, drive: Drive) -> None:
    _run_at(world, drive)
    world.delete()


def _die(world: World, drive: Drive) -> None:
    _run_at(world, drive)
    world.kill(world.machines.functions()[0])


def _configure(world: World, drive: Drive) -> None:
    _run_at(world, drive)
    with world.untouched():
        world.desired.amend(ADMIN, world.instance, Amendment(config={"n": 2}))


def _pin(world: World, drive: Drive) -> None:
    _run_at(world, drive)
    with world.untouched():
        world.desired.amend(ADMIN, world.instance, Amendment(pin=NIC))


def _lose_nic(world: World, drive: Drive) -> None:
    _run_at(world, drive, NIC)
    world.lose(NIC, 20.0)


def _restart_agent(world: World, drive: Drive) -> None:
    _run_at(world, drive)
    world.is_dead = True


ALL: dict[str, Scenario] = {
    "memfd": Scenario(_move(HUB, NIC), outcomes=("done",)),
    "memfd-home": Scenario(_move(NIC, HUB), outcomes=("done",)),
    "copy": Scenario(_move(HUB, NIC), copies=True, outcomes=("done",)),
    "remote": Scenario(_move(HUB, NIC), remote=True, outcomes=("done",)),
    "remote-home": Scenario(_move(NIC, HUB), remote=True, outcomes=("done",)),
    "turn-back": Scenario(_turn_back, outcomes=("rolled-back",)),
    "opaque": Scenario(_move(HUB, NIC, "opaque"), outcomes=("done",)),
    "pin": Scenario(_pin, outcomes=("done",)),
    "start": Scenario(_start),
    "start-remote": Scenario(_start, remote=True),
    "delete": Scenario(_delete),
    "die": Scenario(_die),
    "configure": Scenario(_configure),
    "lose-nic": Scenario(_lose_nic),
    "lose-nic-remote": Scenario(_lose_nic, remote=True, outcomes=("done",)),
    "restart-agent": Scenario(_restart_agent),
}
