"""UNO, Fig. 13: an asset monitor in line that moves between host and smart NIC under traffic, over real switches.

Per number of flows: the bytes of the state, and figures as of bench/migration: `freeze`, `added` latency of packets
sent during a move, less that of packets sent between moves, and packets lost, duplicated and reordered. The monitor's
tables have room for 1,024 flows. `lines_doubled` and `lines_missing` are its findings that it reported twice, or not:
each host of the traffic has one line. UNO reports 1.6 MB at 1,000 flows, and +40 to 50 ms on average.

With ``--pcie`` the state is copied as over a PCIe link of 10 Gb/s, as to a smart NIC of its own memory, whose cores are
half as fast as the host's (UNO's ratio for DPI; `lab.quota`); without it, its memory is handed over between equals.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.asset_monitor import CLIENTS, SERVERS, AssetMonitor, monitor_spec
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.flow_tally import FlowTally
from lab.server import Lab
from lab.signatures import signatures
from programs.migration import MODES, STAY, Moves, at_rate, figures

FLOWS = (100, 400, 700, 1_000)
QUICK = (100, 1_000)
MOVES, QUICK_MOVES = 250, 5
PACKETS_PER_S = 1_000
ROOM = {"hosts": 1024, "findings": 2048, "connections": 1024, "history_bytes": 1 << 16}
SNIC_SPEED = 0.5
_STRAGGLERS_S = 0.3
_PORTS_PER_HOST = 64
"""Of the traffic's flows; see `lab.flow_frames`."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two numbers of flows, few moves: done in 50 s")
    parser.add_argument("--moves", type=int, help="how many, for each number of flows")
    parser.add_argument("--pcie", action="store_true", help="copy the state, to and from slow cores")
    parser.add_argument("--signatures", type=Path, help="directory of PRADS' files; default: /etc/prads, or a few own")
    arguments = parser.parse_args()
    sizes, moves = (QUICK, QUICK_MOVES) if arguments.quick else (FLOWS, MOVES)
    moves = arguments.moves or moves
    report: dict[str, Any] = {"load_average": os.getloadavg()[0], "packets_per_s": PACKETS_PER_S}
    report["pcie"] = arguments.pcie
    runs = []
    for flows in sizes:
        run, lines = measure(flows, moves, arguments.signatures, pcie=arguments.pcie)
        runs.append(run)
        report[str(flows)] = told(run) | lines
        print(f"... {flows} flows: {json.dumps(report[str(flows)])}", file=sys.stderr)
    print(json.dumps(report | {"all": told(*runs), "load_average_after": os.getloadavg()[0]}))


def measure(flows: int, moves: int, given: Path | None, *, pcie: bool = False) -> tuple[Moves, dict[str, int]]:
    """Move one monitor this many times; return the moves, and what became of its lines."""
    with tempfile.TemporaryDirectory(prefix="am-", dir="/tmp") as path:
        os.environ[ENVIRONMENT] = path
        directory = Path(path)
        files = given.resolve() if given else signatures(directory)
        spec = monitor_spec(snic_speed=SNIC_SPEED if pcie else None)
        settings = STAY | (MODES["copy"] if pcie else {})
        with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
            oneswitchd.wait_up()
            with AgentProcess(lab, directory / "agent", settings) as agent:
                more = ROOM | {"checks": ["udp-system", "udp-service", "arp"]}
                monitor = AssetMonitor(lab, oneswitchd, agent, files, 2, more)
                monitor.stand_between(CLIENTS, SERVERS)
                with monitor.traffic(flows, directory) as stream:
                    tally = FlowTally()
                    stream.fill()
                    stream.settle(_STRAGGLERS_S, 10.0)
                    tally.add(stream.arrivals())
                    run = at_rate(monitor, stream, tally, PACKETS_PER_S, moves)
                    stream.stop()
                return run, lines(monitor, flows)


def lines(monitor: AssetMonitor, flows: int) -> dict[str, int]:
    """Compare the lines about the traffic's hosts with its hosts."""
    found = Counter(line.split(",")[0] for _, line in monitor.lines() if ",17,UDP," in line)
    hosts = -(-flows // _PORTS_PER_HOST)
    return {
        "hosts": hosts,
        "lines_missing": hosts - len(found),
        "lines_doubled": found.total() - len(found),
    }


def told(*runs: Moves) -> dict[str, Any]:
    """Return the figures of these runs that concern a monitor, which has no backends."""
    return {name: value for name, value in figures(runs).items() if name != "strayed"}
