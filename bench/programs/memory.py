"""Memory of oneswitchd with many rules, compared with an Open vSwitch that holds the same rules."""

import argparse
import json
from pathlib import Path

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from programs.openflow import OpenFlowClient, add_flow


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no effect: it is always quick")
    parser.add_argument("--rules", type=int, default=100_000)
    rules = parser.parse_args().rules
    with Lab(LabSpec.demo(substrate="dummy")).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        empty = rss_mb(oneswitchd.pid)
        switch_empty = switch_mb(lab)
        with OpenFlowClient(oneswitchd.management) as client:
            for number in range(rules):
                client.send(add_flow(number, 1 + number % 4))
            client.barrier()
            figures = {"rules": rules, "rss_mb": rss_mb(oneswitchd.pid), "empty_rss_mb": empty}
            figures |= {"ovs_rss_mb": switch_mb(lab), "ovs_empty_rss_mb": switch_empty}
    print(json.dumps(figures))


def switch_mb(lab: Lab) -> float:
    """Return the resident memory of the hypervisor's ovs-vswitchd."""
    return rss_mb(lab.state.switches[0].processes["ovs-vswitchd"])


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1000
