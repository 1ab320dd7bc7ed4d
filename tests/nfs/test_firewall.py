"""Moves of the firewall, and deaths of its inspector, while captures are replayed: as ndpiReader, and nothing lost."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from lab.namespaces import unshare_command
from lab.programs import environment
from tests.nfs.wire import PROJECT, nf_program

PROGRAM = Path(__file__).with_name("moving_firewalls.py")
CAPTURES = PROJECT / ".venv/captures/ndpi"
SEED = int(os.environ.get("MOVES_SEED", "1"))
MOVES = int(os.environ.get("FIREWALL_MOVES", "1000"))
PLAYED = 0.8
"""The share of captures that interfaces take, at least."""
MOVE_S = 30
"""The limit for one move on a busy machine."""


def replays(directory: Path, captures: list[Path], moves: int) -> list[dict[str, Any]]:
    """Replay captures with moves in each; check what leaves, and return the reports."""
    helper = str(Path(nf_program()).with_name("nf-dpi"))
    arguments = [str(directory), nf_program(), helper, str(SEED), str(moves), *map(str, captures)]
    command = [*unshare_command(), "--mount-proc", sys.executable, str(PROGRAM), *arguments]
    limit = (moves + 2) * len(captures) * MOVE_S
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=limit)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for each in told:
        assert "failed" not in each, each
        assert (each["lost"], each["double"], each["reordered"], each["strayed"]) == (0, 0, 0, []), each
    return told


def _requests(path: Path) -> Path:
    """Write a capture of a question to a name server, and of requests to web servers."""
    ether, packets = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02"), []
    client, server = "10.1.0.1", "10.1.0.2"
    question = UDP(sport=5353, dport=53) / DNS(rd=1, qd=DNSQR(qname="www.example.com"))
    packets.append(ether / IP(src=client, dst=server) / question)
    for port in range(40_000, 40_008):
        asked = f"GET /{port} HTTP/1.1\r\nHost: www.example.com\r\n\r\n".encode()
        told = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        to, back = IP(src=client, dst=server), IP(src=server, dst=client)
        out, home = {"sport": port, "dport": 80}, {"sport": 80, "dport": port}
        ends = 100 + len(asked)
        packets += [
            ether / to / TCP(**out, seq=99, flags="S"),
            ether / back / TCP(**home, seq=199, ack=100, flags="SA"),
            ether / to / TCP(**out, seq=100, ack=200, flags="A"),
            ether / to / TCP(**out, seq=100, ack=200, flags="PA") / asked,
            ether / back / TCP(**home, seq=200, ack=ends, flags="PA") / told,
            ether / to / TCP(**out, seq=ends, ack=200 + len(told), flags="A"),
        ]
    wrpcap(str(path), packets)
    return path


needs_ndpireader = pytest.mark.skipif(not shutil.which("ndpiReader"), reason="libndpi-bin is not installed")


@pytest.mark.namespaces
@needs_ndpireader
def test_verdicts_stay_those_of_ndpireader_through_moves_and_kills(directory: Path) -> None:
    found = [path for name in ("ssh", "quic_q50") for path in CAPTURES.glob(f"*/tests/pcap/{name}.pcap")]
    told = replays(directory, found or [_requests(directory / "requests.pcap")], 2)
    assert sum(each["moves"] for each in told) >= 2
    assert sum(each["kills"] for each in told) >= 1
    assert sum(each["flows"] for each in told) >= 2
    assert [each["different"] for each in told] == [[]] * len(told)


@pytest.mark.soak
@pytest.mark.namespaces
@pytest.mark.timeout(14400)
@needs_ndpireader
@pytest.mark.skipif(not CAPTURES.exists(), reason="tools/prepare soak has unpacked no captures")
def test_verdicts_stay_those_of_ndpireader_through_1000_moves(directory: Path) -> None:
    captures = sorted(CAPTURES.glob("*/tests/pcap/*.pcap*"))
    told = replays(directory, captures, math.ceil(MOVES / (PLAYED * len(captures))))
    moves, kills = (sum(each[key] for each in told) for key in ("moves", "kills"))
    flows, different = sum(each["flows"] for each in told), sum(len(each["different"]) for each in told)
    of_order = [each["capture"] for each in told if "of_order" in each]
    print(f"{len(told)} captures, {moves} moves, {kills} kills, {flows} flows; {different} differ from ndpiReader's")
    print(f"applications that depend on the order of packets of different flows: {of_order}")
    # The firewall's inspector gets neither retransmissions nor what comes out of order, also without moves.
    assert different <= flows / 100
    assert moves >= MOVES
