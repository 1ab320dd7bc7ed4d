"""An asset monitor at a tap of ports on two real switches, moved between host and smart NIC under traffic."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest

from lab.agent import AgentProcess
from lab.asset_monitor import AssetMonitor, monitor_spec
from lab.control_plane import Oneswitchd
from lab.ends import End
from lab.server import Lab
from lab.signatures import own_signatures
from lab.syn_flood import syns
from lab.traffic import Stream
from tests.nfagent.world import wait_until

pytestmark = pytest.mark.namespaces

STRANGERS_PER_S = 150
PAIRS = (("out1", "vm1"), ("vm2", "nf1"))
"""Sources at the smart NIC and at the hypervisor, and where their packets go: each crosses the PCIe link."""
ROOM = {"hosts": 30_000, "findings": 60_000, "history_bytes": 4 << 20}
"""For all strangers of moves that take long on a busy machine."""
SEEN = 0.98
"""The least part of strangers: a machine with too few cores may drop frames on their way to the switches."""
MOVES = ("snic0", "hypervisor", "snic0", "hypervisor")


@pytest.fixture(scope="module")
def monitor(module_lab_dir: Path) -> Iterator[AssetMonitor]:
    settings = {"monitor": {"period_s": 0.2}, "decide": {"enabled": False}}
    with Lab(monitor_spec()).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        with AgentProcess(lab, module_lab_dir / "agent", settings) as agent:
            made = AssetMonitor(lab, oneswitchd, agent, own_signatures(module_lab_dir), 1, ROOM)
            for source, target in PAIRS:
                made.watch(source, target)
            yield made


def strangers(monitor: AssetMonitor, seed: int, stack: ExitStack) -> End:
    """Send SYNs from a pair's source, each of a stranger of its own."""
    source, target = PAIRS[seed]
    to = ["--to", monitor.lab.host(target).ip, "--port", "80", "--rate", str(STRANGERS_PER_S), "--seed", str(seed)]
    return stack.enter_context(closing(End(monitor.lab, source, "lab.syn_flood", to)))


def test_each_stranger_has_one_line_while_the_tap_moves(monitor: AssetMonitor) -> None:
    with ExitStack() as stack:
        streams = [
            stack.enter_context(Stream(monitor.lab, *pair, rate=500, number=number))
            for number, pair in enumerate(PAIRS)
        ]
        floods = [strangers(monitor, seed, stack) for seed in range(len(PAIRS))]
        ended = [monitor.move(target) for target in MOVES]
        sent = [flood.ask("stop", "sent")["syns"] for flood in floods]
        reports = [stream.stop() for stream in streams]
    expected = [list(dict.fromkeys(syn.source for syn in islice(syns(seed), sent[seed]))) for seed in (0, 1)]
    assert min(sent) > STRANGERS_PER_S
    lines: list[tuple[int, str]] = []

    def nearly_all_are_found() -> bool:
        lines.extend(monitor.lines(after=len(lines)))
        return sum(",SYN," in line for _, line in lines) >= SEEN * sum(map(len, expected))

    wait_until(nearly_all_are_found)
    assert [number for number, _ in lines] == list(range(1, len(lines) + 1))
    found = [line.split(",")[0] for _, line in lines if ",SYN," in line]
    seen = set(found)
    assert len(found) == len(seen)
    for sources in expected:
        mine = set(sources)
        assert [source for source in found if source in mine] == [source for source in sources if source in seen]
    assert seen <= {*expected[0], *expected[1]} & {host["address"] for host in monitor.hosts()}
    for report in reports:
        assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report
    assert [each["report"]["lost_state"] for each in ended] == [None] * len(MOVES)


def test_its_costs_are_learnt_at_each_class_of_locations(monitor: AssetMonitor) -> None:
    def is_learnt(location_class: str) -> bool:
        costs = monitor.client.get("/api/v1/placement/costs").json()["costs"]
        found = [each for each in costs if (each["kind"], each["location_class"]) == ("assets", location_class)]
        return bool(found) and found[0]["trusted"]

    with Stream(monitor.lab, *PAIRS[0], rate=1000, size=1400):
        wait_until(lambda: is_learnt("host"))
        monitor.move("snic0")
        wait_until(lambda: is_learnt("nic"))
        monitor.move("hypervisor")

    def compares_both() -> bool:
        why = monitor.client.get("/api/v1/placement/why/monitor").json()["why"]
        return set(why["millicores"]) == {"hypervisor", "snic0"}

    wait_until(compares_both)
