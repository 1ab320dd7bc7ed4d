"""Moves of the firewall, and deaths of its inspector, while captures are replayed: as ndpiReader, and nothing lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.namespaces import unshare_command
from lab.programs import environment
from tests.nfs.wire import PROJECT, nf_program

PROGRAM = Path(__file__).with_name("moving_firewalls.py")
CAPTURES = PROJECT / ".venv/captures/ndpi"
SEED = int(os.environ.get("MOVES_SEED", "1"))
MOVES = int(os.environ.get("FIREWALL_MOVES", "1000"))
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


needs_ndpireader = pytest.mark.skipif(not shutil.which("ndpiReader"), reason="libndpi-bin is not installed")


@pytest.mark.namespaces
@needs_ndpireader
def test_verdicts_stay_those_of_ndpireader_through_moves_and_kills(directory: Path) -> None:
    found = [path for name in ("ssh", "quic_q50") for path in CAPTURES.glob(f"*/tests/pcap/{name}.pcap")]
    captures = found or sorted((PROJECT / ".venv").glob("lib/python3*/site-packages/os_ken/tests/packet_data/*.pcap"))
    told = replays(directory, captures[:2], 2)
    assert sum(each["moves"] for each in told) >= 2
    assert sum(each["kills"] for each in told) >= 1
    assert [each["different"] for each in told] == [[]] * len(told)


@pytest.mark.soak
@pytest.mark.namespaces
@pytest.mark.timeout(14400)
@needs_ndpireader
@pytest.mark.skipif(not CAPTURES.exists(), reason="tools/prepare soak has unpacked no captures")
def test_verdicts_stay_those_of_ndpireader_through_1000_moves(directory: Path) -> None:
    captures = sorted(CAPTURES.glob("*/tests/pcap/*.pcap*"))
    told = replays(directory, captures, -(-MOVES // len(captures)))
    moves, kills = (sum(each[key] for each in told) for key in ("moves", "kills"))
    flows, different = sum(each["flows"] for each in told), sum(len(each["different"]) for each in told)
    print(f"{len(told)} captures, {moves} moves, {kills} kills, {flows} flows; {different} differ from ndpiReader's")
    # The firewall's inspector gets neither retransmissions nor what comes out of order, also without moves.
    assert different <= flows / 100
