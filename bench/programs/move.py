"""A port that moves between hypervisor and sNIC under traffic in both directions, compared with no moves."""

import argparse
import json
import subprocess
import time

from lab.control_plane import Oneswitchd
from lab.mobility import MovingHost, Tour, there_and_back
from lab.server import Lab
from lab.spec import LabSpec

MOBILE, PEER = "vm2", "out1"
RULES = ("in_port=2,actions=output:4", "in_port=4,actions=output:2", "priority=1,actions=flood")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 moves instead of 40")
    parser.add_argument("--moves", type=int, help="how many moves")
    parser.add_argument("--rate", type=float, default=1000.0, help="packets/s and direction")
    arguments = parser.parse_args()
    moves = arguments.moves or (10 if arguments.quick else 40)
    with Lab(LabSpec.demo(static_arp=True)).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        for rule in RULES:
            subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", oneswitchd.management, rule], check=True)
        start = time.monotonic()
        moved = measure(lab, oneswitchd, moves, arguments.rate)
        still = measure(lab, oneswitchd, 0, arguments.rate, idle_s=time.monotonic() - start)
    print(json.dumps(report(moved, still)))


def measure(lab: Lab, oneswitchd: Oneswitchd, moves: int, rate: float, idle_s: float = 0.0) -> Tour:
    """Move ``moves`` times under traffic, or run the same traffic for ``idle_s`` seconds."""
    with MovingHost(lab, oneswitchd, MOBILE, PEER, rate) as host:
        for number in range(moves):
            host.move(there_and_back(number))
        time.sleep(idle_s)  # the control lasts as long as the measurement
        return host.finish()


def report(moved: Tour, still: Tour) -> dict[str, float | int]:
    """Report both directions together. ``sender_pause``: the longest time in which the sender itself did not run."""
    return {
        "moves": moved.moves,
        "sent": moved.sent,
        "lost": moved.lost,
        "duplicated": moved.duplicated,
        "reordered": moved.reordered,
        "longest_gap_ms": round(moved.longest_gap_ms, 3),
        "sender_pause_ms": round(moved.longest_pause_ms, 3),
        "still_sent": still.sent,
        "still_lost": still.lost,
        "still_longest_gap_ms": round(still.longest_gap_ms, 3),
        "still_sender_pause_ms": round(still.longest_pause_ms, 3),
    }
