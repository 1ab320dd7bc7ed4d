"""kill -9 of any part at any moment: in the end the tables match the controller's intent."""

import random

import pytest

from tests.recovery.conftest import Server, eventually
from tests.recovery.controller import Controller, Intent

VSWITCHDS = ("vswitchd hypervisor", "vswitchd snic0")
VICTIMS = ("oneswitchd", "oneswitchd", "controller", *VSWITCHDS, "both")
HOMES = {"hypervisor": {1, 2}, "snic0": {3, 4}}


def check(server: Server, controller: Controller, history: list[str]) -> None:
    """Check that the one switch matches the controller's intent, and each bridge its share, after repairs."""
    controller.finish()
    server.oneswitchd.wait_up()
    where = "\n".join(history)
    intent = controller.intent
    eventually(lambda: server.cookies() == intent.cookies() and settled(server, intent))
    assert server.cookies() == intent.cookies(), where
    for switch, ports in HOMES.items():
        assert server.cookies(server.bridge(switch)) == intent.cookies(ports), f"{switch} after\n{where}"
        groups = server.ofctl("dump-groups", target=server.bridge(switch)).splitlines()[1:]
        found = {int(line.split("group_id=")[1].split(",")[0]) for line in groups}
        assert {group for group in found if group < 1000} == intent.groups, f"{switch} after\n{where}"


def settled(server: Server, intent: Intent) -> bool:
    """Tell whether every bridge has its share of the rules."""
    return all(server.cookies(server.bridge(switch)) == intent.cookies(ports) for switch, ports in HOMES.items())


def crash(server: Server, controller: Controller, chance: random.Random) -> str:
    """Kill one part at a random moment of a random workload, and start it some time later."""
    victim = chance.choice(VICTIMS)
    victims = ["oneswitchd", chance.choice(VSWITCHDS)] if victim == "both" else [victim]
    for _ in range(chance.randint(1, 6)):
        controller.write()
    controller.pump(chance.uniform(0, 0.01))
    for each in victims:
        if each == "controller":
            controller.kill()
        else:
            server.kill(each)
    for _ in range(chance.randint(0, 2)):
        controller.write()
    controller.pump(chance.uniform(0, 0.01))
    chance.shuffle(victims)
    for each in victims:
        if each == "controller":
            controller.connect()
        else:
            server.start(each)
    return " and ".join(victims)


def crashes(server: Server, count: int, seed: int) -> Controller:
    """Many kills; checked after every few, and at the end."""
    chance = random.Random(seed)
    controller = Controller(lambda: server.oneswitchd.management, chance)
    history = [f"seed {seed}"]
    try:
        controller.connect()
        for number in range(count):
            history.append(crash(server, controller, chance))
            if chance.random() < 0.5 or number == count - 1:
                check(server, controller, history)
                history.append("(checked)")
    finally:
        controller.kill()
    return controller


def test_tables_survive_ten_crashes(server: Server) -> None:
    controller = crashes(server, 10, seed=1)
    assert controller.acknowledged > 10
    assert controller.intent.rules


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, 14))
def test_tables_survive_fifty_crashes(server: Server, seed: int) -> None:
    crashes(server, 50, seed)
