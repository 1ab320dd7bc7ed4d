"""Packets that an XDP program on the load balancer's port has marked, in network namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.namespaces import unshare_command
from tests.nfs.wire import nf_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.root
def test_marked_packets_reach_the_backend_of_their_flow_and_each_counts_once(directory: Path) -> None:
    command = [*unshare_command(), sys.executable, "-m", "tests.nfs.marks_stage", nf_program(), str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["backends_of_flows"] == [1]
    assert sum(result["arrived"].values()) == result["sent"]
    assert result["counted"] == result["arrived"]
    assert 0 < result["offload"]["packets"] < result["sent"]
    assert result["after_removal"] == {"one": 0, "two": 240}
    assert result["refused"] == {}
