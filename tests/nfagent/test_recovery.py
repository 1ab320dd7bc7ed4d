"""A smart NIC is cut off: its instances restart on the hypervisor, and migrations end correctly."""

import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from nfagent.bulletin import Bulletin
from nfagent.config import AgentConfig
from nfagent.errors import DiskFullError, LaunchError, WiringError
from nfagent.locations import Locations, Transition
from nfagent.starter import Starter
from nfagent.store import Store, instances, processes
from nfagent.wiring import ServerWiring
from server.errors import DatabaseUnreachableError
from server.oneswitchd.answers import BridgeState, LinkState, Status, SwitchState
from tests.nfagent import samples
from tests.nfagent.test_migrate import SOURCE, TARGET, V1, Case, interrupted
from tests.nfagent.world import World, processes_of, write_files

DOWN = BridgeState(target="x", state="down", last_error="Connection refused")
UP = BridgeState(target="x", state="up")
SILENT = BridgeState(target="x", state="silent")
HANGS = "its Open vSwitch hangs: it is connected, but does not answer"
OWNER = "nfagent/acme/lb"


def status(edge: BridgeState = UP, link: str = "up", hub: BridgeState = UP) -> Status:
    """Return oneswitchd's status."""
    snic = SwitchState(name=TARGET, virt=UP, edge=edge, link=LinkState(hypervisor="pcie", local="pf0hpf", state=link))
    return Status(version="1", datapath_id="1", switches=(SwitchState(name=SOURCE, hub=True, virt=hub, edge=UP), snic))


def cut_off(world: World) -> None:
    """Take the smart NIC down."""
    world.agent._locations.look(status(DOWN), 0.0)
    world.agent._locations.look(status(DOWN), 5.0)


def told(store: Store, kind: str) -> list[dict[str, Any]]:
    """Return the payloads of the events of a type."""
    rows = store.read.execute("SELECT payload FROM event WHERE type = ? ORDER BY id", (kind,))
    return [json.loads(row["payload"]) for row in rows]


@pytest.fixture
def case(directory: Path) -> Iterator[Case]:
    world = World(directory)
    try:
        yield Case(world)
    finally:
        world.close()


def test_strays_are_ended_only_as_long_as_they_are_strays(tmp_path: Path) -> None:
    stray, returns = samples.instance("stray"), samples.instance("returns")

    def stop(key: str, _: float) -> None:
        """Take so long that another instance starts there."""
        ended.append(key)
        with store.change() as change:
            instances.add(change, returns)
            processes.add(change, samples.running(returns, TARGET))

    ended: list[str] = []
    keys = [f"{each.id}.{TARGET}" for each in (stray, returns)]
    store, launcher = Store(tmp_path), MagicMock(all_keys=lambda: keys, stop=stop)
    starter = Starter(store, MagicMock(), MagicMock(), {TARGET: launcher}, MagicMock(), MagicMock())
    assert starter.end_strays(list, TARGET) == ([keys[0]], [])
    assert ended == keys[:1]
    store.close()


def test_a_location_goes_down_after_a_delay_and_up_immediately(directory: Path) -> None:
    changed: queue.SimpleQueue[tuple[str, Transition]] = queue.SimpleQueue()
    store = Store(directory / "state")
    locations = Locations(Bulletin(store), status, 2.0, lambda *seen: changed.put(seen))
    locations.look(status(DOWN), 10.0)
    assert (locations.is_cut_off(TARGET), locations.is_down(TARGET)) == (True, False)
    locations.look(status(), 11.0)
    locations.look(status(DOWN), 11.5)
    locations.look(status(DOWN), 13.4)
    assert not locations.is_down(TARGET)
    locations.look(status(link="down"), 13.6)
    assert (locations.is_down(TARGET), changed.get(timeout=60)) == (True, (TARGET, "down"))
    locations.look(status(DOWN), 20.0)
    locations.look(status(), 20.5)
    assert (locations.is_down(TARGET), locations.is_cut_off(TARGET)) == (False, False)
    assert changed.get(timeout=60) == (TARGET, "up")
    # The hypervisor's switch reports the links: without it their state is unknown, and no target remains.
    locations.look(status(hub=DOWN, link="down"), 21.0)
    locations.look(status(hub=DOWN, link="down"), 30.0)
    assert not locations.is_down(SOURCE)
    assert not locations.is_down(TARGET)
    reason = "its Open vSwitch does not answer: Connection refused"
    # That it does not answer is told all the same, once.
    assert told(store, "location.down") == [{"location": place, "reason": reason} for place in (TARGET, SOURCE)]
    locations.look(status(), 31.0)
    locations.look(status(), 32.0)
    assert [each["location"] for each in told(store, "location.up")] == [TARGET, SOURCE]
    locations.stop()
    assert changed.empty()
    store.close()


def hung(place: str) -> Status:
    """Return oneswitchd's status while a switch hangs."""
    switches = status().switches
    silent = {"virt": SILENT, "edge": SILENT}
    return status().model_copy(
        update={"switches": tuple(each.model_copy(update=silent if each.name == place else {}) for each in switches)}
    )


@pytest.mark.parametrize("place", [SOURCE, TARGET])
def test_a_hung_switch_is_told_at_once_and_its_instances_stay_until_it_is_disconnected(
    directory: Path, place: str
) -> None:
    changed: queue.SimpleQueue[tuple[str, Transition]] = queue.SimpleQueue()
    store = Store(directory / "state")
    locations = Locations(Bulletin(store), status, 2.0, lambda *seen: changed.put(seen))
    down, at = [{"location": place, "reason": HANGS}], 0.0
    for at in (1.0, 9.0):
        locations.look(hung(place), at)
        assert told(store, "location.down") == down
    assert not locations.is_cut_off(place)
    disconnected = status(DOWN) if place == TARGET else status(hub=DOWN)
    locations.look(disconnected, 9.5)
    locations.look(disconnected, 12.0)
    assert locations.is_down(place) is (place == TARGET)
    assert told(store, "location.down") == down
    locations.look(status(), 13.0)
    assert [each["location"] for each in told(store, "location.up")] == [place]
    locations.look(hung(place), 14.0)
    assert told(store, "location.down") == down * 2
    locations.stop()
    store.close()


@pytest.mark.parametrize("place", [SOURCE, TARGET])
def test_events_that_a_full_disk_refuses_are_written_once_there_is_room(
    directory: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(directory / "state")
    locations = Locations(Bulletin(store), status, 2.0, lambda *_: None)
    takes, free = MagicMock(side_effect=DiskFullError("no room")), store.change
    for at, found, kind in ((1.0, hung(place), "down"), (5.0, status(), "up")):
        monkeypatch.setattr(store, "change", takes)
        locations.look(found, at)
        locations.miss("timed out", at, at + 2.0)
        assert told(store, f"location.{kind}") == told(store, "oneswitchd.down")[1:] == []
        monkeypatch.setattr(store, "change", free)
        locations.look(found, at + 1.0)
        locations.look(found, at + 2.0)
        assert [each["location"] for each in told(store, f"location.{kind}")] == [place]
    locations.stop()
    store.close()


def test_that_oneswitchd_does_not_answer_is_told_once(directory: Path) -> None:
    store = Store(directory / "state")
    locations = Locations(Bulletin(store), status, 2.0, lambda *_: None)
    locations.miss("refused", 1.0, 1.1)
    locations.look(status(), 2.0)
    locations.miss("refused", 2.5, 2.6)
    locations.miss("refused", 4.4, 4.4)
    assert told(store, "oneswitchd.down") == []
    locations.miss("timed out", 4.4, 4.6)
    locations.miss("timed out", 5.0, 7.0)
    locations.stop()
    again = Locations(Bulletin(store), status, 2.0, lambda *_: None)
    again.miss("timed out", 1.0, 5.0)
    assert told(store, "oneswitchd.down") == [{"reason": "timed out"}]
    again.look(status(), 6.0)
    again.look(status(), 7.0)
    assert told(store, "oneswitchd.up") == [{"reason": "it answers again"}]
    again.stop()
    store.close()


def test_handling_one_change_does_not_hide_another(directory: Path) -> None:
    other = "snic1"

    def both(first: BridgeState, second: BridgeState) -> Status:
        found = status(first)
        switch = SwitchState(name=other, virt=UP, edge=second, link=LinkState(hypervisor="p", local="q", state="up"))
        return found.model_copy(update={"switches": (*found.switches, switch)})

    changed: queue.SimpleQueue[tuple[str, Transition]] = queue.SimpleQueue()
    released = threading.Event()

    def end_strays(location: str, change: Transition) -> None:
        changed.put((location, change))
        if change == "up":
            assert released.wait(60)

    store = Store(directory / "state")
    locations = Locations(Bulletin(store), status, 2.0, end_strays)
    try:
        for now, first, second in ((0.0, DOWN, UP), (5.0, DOWN, UP), (6.0, UP, UP)):
            locations.look(both(first, second), now)
        assert {changed.get(timeout=60) for _ in range(2)} == {(TARGET, "down"), (TARGET, "up")}
        # While an ssh to the first one hangs, the second one dies, and then the first one again.
        for now in (7.0, 10.0):
            locations.look(both(DOWN, DOWN), now)
        assert {changed.get(timeout=60) for _ in range(2)} == {(TARGET, "down"), (other, "down")}
    finally:
        released.set()
        locations.stop()
        store.close()


def test_a_location_that_recovered_without_an_agent_is_reported_up(directory: Path) -> None:
    changed: queue.SimpleQueue[tuple[str, Transition]] = queue.SimpleQueue()
    store = Store(directory / "state")
    before = Locations(Bulletin(store), status, 2.0, lambda *seen: changed.put(seen))
    before.look(status(DOWN), 0.0)
    before.look(status(DOWN), 5.0)
    assert changed.get(timeout=60) == (TARGET, "down")
    before.stop()
    for told_again in (True, False):
        restarted = Locations(Bulletin(store), status, 2.0, lambda *seen: changed.put(seen))
        restarted.look(status(), 0.0)
        restarted.look(status(), 1.0)
        if told_again:
            assert changed.get(timeout=60) == (TARGET, "up")
        restarted.stop()
    assert changed.empty()
    assert [len(told(store, kind)) for kind in ("location.down", "location.up")] == [1, 1]
    store.close()


def test_no_port_is_created_at_a_disconnected_location(directory: Path) -> None:
    path = write_files(directory)
    server = AgentConfig.load(path).load_server(path)
    wiring = ServerWiring(server, lambda name: name == TARGET)
    with pytest.raises(WiringError, match=r"port 1000 \(nf1000\) on pf0vf0 of snic0: snic0 is cut off"):
        wiring.connect([(samples.port(1000), "pf0vf0")], TARGET, OWNER)


def test_dialling_a_vanished_switch_blocks_no_other_thread(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialling, given_up = threading.Event(), threading.Event()

    class Dialled:
        """See `ServerPlumbing`; the smart NIC does not answer."""

        def __init__(self, _: Any, *, without: list[str], ports: Any) -> None:
            if TARGET not in without:
                dialling.set()
                assert given_up.wait(60)
                raise DatabaseUnreachableError(f"switch {TARGET}: no database")

        def __enter__(self) -> MagicMock:
            return MagicMock()

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("nfagent.wiring.ServerPlumbing", Dialled)
    path, away = write_files(directory), set[str]()
    wiring = ServerWiring(AgentConfig.load(path).load_server(path), away.__contains__)
    monkeypatch.setattr(wiring, "client", MagicMock())
    with ThreadPoolExecutor(2) as both:
        first = both.submit(wiring.connect, [(samples.port(1000), "vf0")], SOURCE, OWNER)
        assert dialling.wait(60)
        away.add(TARGET)
        try:
            both.submit(wiring.connect, [(samples.port(1001), "vf1")], SOURCE, OWNER).result(10)
            assert not first.done()
        finally:
            given_up.set()
        with pytest.raises(WiringError, match="snic0: no database"):
            first.result()


def test_a_restart_at_a_dying_location_is_rolled_back(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("wired", "wired"), "active")
    own_world.wiring.broken = True
    epoch = own_world.operator.post(f"{V1}/migrations", json={"instance": "wired", "target": TARGET}).json()["epoch"]
    own_world.wait(lambda: own_world.show("wired")["reason"] == "no oneswitchd answers")
    cut_off(own_world)
    own_world.wait(lambda: own_world.operator.get(f"{V1}/migrations/{epoch}").json()["ended"] is not None)
    move = own_world.operator.get(f"{V1}/migrations/{epoch}").json()
    assert (move["outcome"], move["reason"][:13]) == ("rolled-back", "snic0 is down")
    own_world.wiring.broken = False
    shown = own_world.wait_status(made, "active")
    assert shown["placement"]["location"] == SOURCE
    assert processes_of(made["id"]) == [shown["placement"]["pid"]]


def test_no_instance_is_restarted_at_a_location_that_is_down(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("opaque"), "active")
    cut_off(own_world)
    epoch = own_world.operator.post(f"{V1}/migrations", json={"instance": "opaque", "target": TARGET}).json()["epoch"]
    own_world.wait(lambda: own_world.operator.get(f"{V1}/migrations/{epoch}").json()["outcome"] == "rolled-back")
    own_world.operator.patch(f"{V1}/instances/opaque", json={"pin": TARGET})
    own_world.wait(lambda: own_world.show("opaque")["reason"] == f"it is pinned to {TARGET}, which is down")
    assert processes_of(made["id"]) == [made["placement"]["pid"]]
    assert len(own_world.operator.get(f"{V1}/migrations").json()["migrations"]) == 1
    own_world.agent._locations.look(status(), 6.0)
    own_world.wait(lambda: own_world.show("opaque")["placement"]["location"] == TARGET)
    assert own_world.wait_status(made, "active")["reason"] is None


class Unreachable:
    """See `nfagent.launch.Launcher`; its machine does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return self._fail

    def _fail(self, *_: Any) -> Any:
        self.asked += 1
        raise LaunchError("it cannot be reached")


def test_an_instance_at_a_location_that_is_down_can_be_deleted(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("there", pin=TARGET), "active")
    launchers: Any = own_world.agent._reconciler._starter._launchers
    reachable, launchers[TARGET] = launchers[TARGET], Unreachable()
    other = launchers["snic1"] = Unreachable()
    cut_off(own_world)
    own_world.operator.delete(f"{V1}/instances/there")
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/there").status_code == 404)
    assert processes_of(made["id"]) == [made["placement"]["pid"]]
    launchers[TARGET] = reachable
    own_world.agent._locations.look(status(), 6.0)
    own_world.wait(lambda: not processes_of(made["id"]))
    assert other.asked == 0  # its return is not the event


def test_instances_are_restarted_on_the_hypervisor_and_stay(case: Case) -> None:
    world, store = case.world, case.world.agent._store
    assert case.end(case.begin())["outcome"] == "done"
    pinned = world.wait_status(world.create("pinned", pin=TARGET), "active")
    cut_off(world)
    world.wait(lambda: world.show("toy")["placement"]["location"] == SOURCE)
    case.check(SOURCE, 0)
    move = world.operator.get(f"{V1}/migrations/2").json()
    assert (move["mode"], move["outcome"], move["source"], move["target"]) == ("restart", "done", TARGET, SOURCE)
    lost = move["report"]["lost_state"]
    assert (lost["instances"], lost["why"][:13]) == ([case.id], "snic0 is down")
    recovered = told(store, "instance.recovered")
    assert [(each["id"], each["from"], each["location"]) for each in recovered] == [(case.id, TARGET, SOURCE)]
    world.wait(lambda: "pinned there" in (world.show("pinned")["reason"] or ""))
    assert world.show("pinned")["placement"]["location"] == TARGET
    world.create("later")
    assert world.wait_status(world.show("later"), "active")["placement"]["location"] == SOURCE
    world.agent._locations.look(status(), 6.0)
    world.wait(lambda: world.show("pinned")["reason"] is None)
    assert world.show("toy")["placement"]["location"] == SOURCE
    assert processes_of(pinned["id"]) == [world.show("pinned")["placement"]["pid"]]
    world.operator.delete(f"{V1}/instances/pinned")
    world.operator.delete(f"{V1}/instances/later")


@pytest.mark.parametrize("effect", ["rules", "hold", "freeze", "settle", "flip", "drain"])
@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_migration_ends_at_a_live_location_with_its_state(case: Case, victim: str, effect: str) -> None:
    world = case.world
    number = 3
    if victim == "source":
        assert case.end(case.begin())["outcome"] == "done"
        target, number = SOURCE, 3
    else:
        target = TARGET
    with interrupted(effect, "before", lambda: cut_off(world)) as happened:
        answer = world.operator.post(f"{V1}/migrations", json={"instance": "toy", "target": target})
        assert happened.wait(60)
        move = case.end(answer.json()["epoch"])
    assert move["report"]["lost_state"] is None
    # Toward the hypervisor it arrives with the kept state; toward the dead location it rolls back.
    assert move["outcome"] == ("done" if victim == "source" else "rolled-back")
    case.check(SOURCE, number)


def test_the_measurements_of_a_migration_end_with_it(directory: Path) -> None:
    """An agent that is killed between its last entry in the journal and the removal leaves them to the next one."""
    left = directory / "run/migration.7"
    left.parent.mkdir(exist_ok=True)
    left.write_text("{}")
    World(directory).close()
    assert not left.exists()
