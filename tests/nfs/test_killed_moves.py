"""kill -9 of the old or the new instance of a move: no packet twice or out of order, every flow keeps its backend."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.namespaces import unshare_command
from lab.programs import environment
from tests.nfs.wire import nf_program

PROGRAM = Path(__file__).with_name("moving_processes.py")
SEED = int(os.environ.get("MOVES_SEED", "1"))
MOVE_S = 15
"""The limit for one move on a busy machine."""


def moves(directory: Path, count: int) -> None:
    command = [*unshare_command(), sys.executable, str(PROGRAM), str(directory), nf_program(), str(count), str(SEED)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=False, timeout=count * MOVE_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == count
    for move in told:
        assert move["wrong_order_or_double"] == 0, move
        assert move["other_backend"] == 0, move
        assert move["may_lose"] or move["missing"] == 0, move
    assert {move["victim"] for move in told} == {"old", "new", "none"}


@pytest.mark.namespaces
def test_flows_survive_the_death_of_any_process_at_any_step(directory: Path) -> None:
    moves(directory, 15)


@pytest.mark.namespaces
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_flows_survive_1000_deaths_of_any_process_at_any_step(directory: Path) -> None:
    moves(directory, 1000)
