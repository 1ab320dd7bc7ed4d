"""The load balancer between a real client and real servers, in network namespaces."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.namespaces import unshare_command

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.lab


@pytest.fixture(scope="session")
def nf() -> str:
    """The command, built if need be."""
    cargo = ROOT / ".venv/bin/cargo"
    build = [str(cargo) if cargo.exists() else "cargo", "build", "--quiet", "--release", "-p", "nf"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=900)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nf")


@pytest.mark.timeout(1000)  # the first test builds
@pytest.mark.parametrize("mode", ["nat", "snat", "proxy", "ipip", "gue"])
def test_a_browser_reaches_its_servers(mode: str, nf: str, tmp_path: Path) -> None:
    command = [*unshare_command(), sys.executable, "-m", "tests.nfs.l4lb_stage", nf, mode, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["all"] == {"one": 10, "two": 10}
    assert result["seen_as"] == ("10.0.0.2" if mode == "snat" else "10.1.0.100")
    assert result["large"] == 200_000
    other = "two" if result["drained"] == "one" else "one"
    assert result["while_drained"] == {other: 10}
    assert result["kept"] == result["drained"]
    assert result["while_down"] == {"two": 10}
    assert result["again"] == {"one": 5, "two": 5}
    assert result["full"] is False
