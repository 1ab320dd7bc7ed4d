"""The instances of a chain are placed together when they start, with its bound."""

from dataclasses import replace

from nfagent.decide.situation import APART
from nfagent.model import Instance
from nfagent.store import chains, instances, processes
from tests.nfagent import samples
from tests.nfagent.decide.conftest import Make
from tests.nfagent.decide.world import HYPERVISOR, NIC, VM, WIRE, DecideWorld

BOUND_US = 10  # one PCIe link


def ordered(
    world: DecideWorld, count: int, *hops: str, latency_us: int | None = None, **fields: object
) -> list[Instance]:
    """Write a chain whose instances have not been started; they come between ``hops``."""
    taken = len(instances.port_owners(world.store.read))
    made = [
        samples.instance(f"hop{number}", kind="lb", ports=(samples.port(1000 + taken + number),), **fields)
        for number in range(count)
    ]
    ids = tuple(each.id for each in made)
    path = (*hops[:1], *ids, *hops[1:])
    with world.store.change() as change:
        for each in made:
            instances.add(change, each)
        chains.add(change, replace(samples.chain("web", path), latency_us=latency_us, owned=ids))
    return made


def start(world: DecideWorld, instance: Instance) -> str:
    """Start an instance where the decider says."""
    at = world.decider.place(instance)
    with world.store.change() as change:
        processes.add(change, samples.running(instance, at, phase="active", slot=world._free_slot(at)))
    return at


def places(world: DecideWorld, made: list[Instance]) -> list[str]:
    return [world.decider.place(each) for each in made]


def test_without_a_bound_all_start_on_the_hypervisor(world: DecideWorld) -> None:
    assert places(world, ordered(world, 3, f"port:{VM}", f"port:{WIRE}")) == [HYPERVISOR] * 3


def test_a_bound_brings_all_to_the_side_of_the_ports(world: DecideWorld) -> None:
    made = ordered(world, 3, f"port:{WIRE}", f"port:{WIRE}", latency_us=BOUND_US)
    assert places(world, made) == [NIC] * 3


def test_a_bound_is_kept_beside_instances_that_must_be_apart(world: DecideWorld) -> None:
    for name in ("one", "two"):
        world.create(name, NIC, labels={APART: "ha"})
    made = ordered(world, 3, f"port:{WIRE}", f"port:{WIRE}", latency_us=BOUND_US)
    assert places(world, made) == [NIC] * 3


def test_a_chain_is_cut_once_where_there_is_room(other: Make) -> None:
    world = other(slots=3)
    world.create("neighbour")  # leaves two slots on the hypervisor
    made = ordered(world, 4, f"port:{VM}", f"port:{WIRE}", latency_us=BOUND_US)
    found = [start(world, each) for each in made]
    assert found == sorted(found, key=[HYPERVISOR, NIC].index)
    assert set(found) == {HYPERVISOR, NIC}


def test_a_bound_that_no_placement_keeps_is_left_to_the_wishes(world: DecideWorld) -> None:
    made = ordered(world, 2, f"port:{VM}", f"port:{WIRE}", latency_us=1)
    assert places(world, made) == [HYPERVISOR] * 2


def test_an_instance_that_could_not_start_is_placed_again_beside_those_that_run(other: Make) -> None:
    world = other(slots=2)
    first, second = ordered(world, 2, f"port:{VM}", f"port:{VM}")
    assert start(world, first) == HYPERVISOR
    assert world.decider.place(second) == HYPERVISOR
    world.create("faster")  # takes the slot
    assert world.decider.place(second) == NIC


def test_an_instance_that_asks_again_before_the_others_is_placed_again(other: Make) -> None:
    world = other(slots=2)
    first, *_ = ordered(world, 3, f"port:{VM}", f"port:{VM}")
    at = world.decider.place(first)
    rival = world.create("faster", at)
    world.create("fastest", at, pin=at)
    assert world.decider.place(first) != at, rival


def test_those_that_run_already_stay_where_they_are(world: DecideWorld) -> None:
    first, second = ordered(world, 2, f"port:{VM}", f"port:{WIRE}", latency_us=BOUND_US)
    with world.store.change() as change:
        processes.add(change, samples.running(first, NIC, phase="active", slot=world._free_slot(NIC)))
    assert world.decider.place(second) == NIC


def test_without_room_for_all_each_is_placed_by_itself(other: Make) -> None:
    world = other(slots=1)
    made = ordered(world, 3, f"port:{VM}", f"port:{VM}")
    assert [start(world, each) for each in made[:2]] == [HYPERVISOR, NIC]


def test_without_oneswitchd_each_is_placed_by_itself(world: DecideWorld) -> None:
    made = ordered(world, 1, f"port:{WIRE}", f"port:{WIRE}", latency_us=BOUND_US)
    world.silent = True
    assert places(world, made) == [HYPERVISOR]


def test_labels_and_lacking_files_hold_for_chains(world: DecideWorld) -> None:
    made = ordered(world, 3, f"port:{WIRE}", f"port:{WIRE}", latency_us=4 * BOUND_US, labels={APART: "x"})
    assert places(world, made).count(NIC) <= 1
    world.fitness.lacking = {NIC: "it lacks a file"}
    assert places(world, made) == [HYPERVISOR] * 3


def test_the_others_stay_and_their_overload_does_not_matter(other: Make) -> None:
    world = other(host_cores=100)
    world.create("busy", mbps=1000.0)
    world.monitor.measured = world._measure()
    made = ordered(world, 2, f"port:{WIRE}", f"port:{WIRE}", latency_us=BOUND_US)
    assert places(world, made) == [NIC] * 2
    assert world.where("busy") == HYPERVISOR
