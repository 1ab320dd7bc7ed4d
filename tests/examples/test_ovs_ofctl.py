"""Stock ovs-ofctl at the listener of controllers, in each version, as at the listener of an Open vSwitch bridge."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from lab import Lab, LabError, LabSpec
from lab.control_plane import Oneswitchd, find_installed, free_port

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The TCP listener of a server with two switches."""
    try:
        find_installed("oneswitchd")
    except LabError as error:
        pytest.skip(str(error))
    port = free_port()
    spec = LabSpec.star(1, 2, substrate="dummy", listen=(f"ptcp:{port}:127.0.0.1",))
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        yield f"tcp:127.0.0.1:{port}"


@pytest.mark.parametrize(
    "version", [(), ("-OOpenFlow13",), ("-OOpenFlow14",), ("-OOpenFlow15",)], ids=["default", "1.3", "1.4", "1.5"]
)
def test_ovs_ofctl_works_at_the_listener_of_controllers(target: str, version: tuple[str, ...]) -> None:
    def ofctl(command: str, *words: str) -> str:
        argv = ["ovs-ofctl", *version, command, target, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    assert "dpid:0000000000000001" in ofctl("show")
    ofctl("add-flow", "in_port=1,ip,nw_dst=10.0.0.1,actions=dec_ttl,output:3")
    ofctl("mod-flows", "ip,actions=output:4")
    assert "nw_dst=10.0.0.1 actions=output:4" in ofctl("dump-flows")
    assert "flow_count=1" in ofctl("dump-aggregate")
    assert "tx pkts=" in ofctl("dump-ports", "4")
    ofctl("del-flows")
    assert "nw_dst" not in ofctl("dump-flows")
