"""CPU time per packet of the IPsec gateway beside strongSwan's libipsec: the two ends of one tunnel.

The same datagrams of 1,300 bytes pass both, one protects them and the other opens them, from interface to interface;
then the other way round. CPU time is that of the processes `nf` and charon, with their system calls. AES-256-GCM in
UDP, keys by IKE.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lab.processes import children
from lab.server import HostProcess
from nf_benches.veth import cpu_ns
from tests.nfs.charon import STRONGSWAN
from tests.nfs.ike_peers import EAST, WEST, Peers

LENGTH = 1300
SECONDS = 5
#: Low enough for two busy cores: a lost packet costs one end only.
RATE = "150M"


def compare() -> dict[str, Any]:
    """Return `libipsec_speedup` and its parts; the values are null without strongSwan in .venv."""
    if not STRONGSWAN.exists():
        return dict.fromkeys(("libipsec_speedup", "gateway_us", "libipsec_us", "libipsec_packets"))
    with (
        tempfile.TemporaryDirectory(prefix="uno-", dir="/tmp") as directory,
        Peers(Path(directory), backend="auto") as peers,
    ):
        peers.connect()
        programs = [inner(peers.nf), inner(peers.charons["east"].process)]
        peers.hosts.popen("east", ["iperf3", "-s", "-B", EAST], stdout=subprocess.DEVNULL)
        before, ready = [cpu_ns(each) for each in programs], packets(peers)
        for way in ([], ["-R"]):
            command = ["iperf3", "-c", EAST, "-B", WEST, "-u", "-b", RATE, "-l", str(LENGTH), "-t", str(SECONDS), *way]
            peers.hosts.run("west", *command)
        spent = [cpu_ns(each) - old for each, old in zip(programs, before, strict=True)]
        passed = packets(peers) - ready
    gateway, libipsec = (each / passed / 1000 for each in spent)
    return {
        "libipsec_speedup": round(libipsec / gateway, 2),
        "gateway_us": round(gateway, 2),
        "libipsec_us": round(libipsec, 2),
        "libipsec_packets": passed,
    }


def inner(process: HostProcess) -> int:
    """Return the program itself, which a process outside waits for."""
    return (children(process.pid) or [process.pid])[0]


def packets(peers: Peers) -> int:
    """Return how many packets the gateway has protected and opened."""
    return sum(each["packets"] for each in peers.tunnel()["associations"])
