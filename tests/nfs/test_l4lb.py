"""The modes of the load balancer between a real client and real servers, in network namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.namespaces import unshare_command
from lab.programs import find_program
from tests.nfs.wire import nf_program

ROOT = Path(__file__).resolve().parents[2]


def has_vxlan() -> bool:
    """Tell whether the kernel has devices that end VXLAN tunnels."""
    add = [find_program("ip"), "link", "add", "type", "vxlan", "id", "1", "dstport", "4789"]
    return subprocess.run([*unshare_command(), *add], capture_output=True, check=False).returncode == 0


@pytest.mark.namespaces
@pytest.mark.parametrize("mode", ["proxy", "ipip", "gue", "vxlan", "vxlan-ipv6", "vxlan-ovs"])
def test_a_browser_reaches_the_servers_in_every_mode(mode: str, directory: Path) -> None:
    if mode in ("vxlan", "vxlan-ipv6") and not has_vxlan():
        pytest.skip("this kernel has no vxlan device")
    command = [*unshare_command(), sys.executable, "-m", "tests.nfs.l4lb_stage", nf_program(), mode, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["all"] == {"one": 10, "two": 10}
    assert result["seen_as"] == "10.1.0.100"
    assert result["large"] == result["posted"] == 200_000
    other = "two" if result["drained"] == "one" else "one"
    assert result["while_drained"] == {other: 10}
    assert result["kept"] == result["drained"]
    assert result["while_down"] == {"two": 10}
    assert result["again"] == {"one": 5, "two": 5}
    assert result["full"] is False
    # Packets of the posted body did not fit into the tunnel at first.
    assert ("too big" in result["dropped"]) == (mode != "proxy")
