"""CPU time per packet that DPDK's ipsec-secgw protects, beside the gateway's step.

Both take the same packet from memory again and again, protect it with AES-256-GCM and extended sequence numbers, and
send it nowhere. For ipsec-secgw, which polls, that is the CPU time of its process over the packets sent: net_pcap
replays a file from memory, net_null discards, AES-GCM is Intel's ipsec-mb. For the gateway it is its step and the copy
of the frame into a batch (`fill_ns_...`), as net_pcap copies it. Only protecting is compared: ipsec-secgw would open
one packet many times only with its window off.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from nf_benches.veth import cpu_ns
from tests.nfs.test_ipsec import PORT, STATION
from tests.nfs.test_secgw import SECGW, rules

LENGTHS = (64, 1400)
SECONDS = 3
#: The time that ipsec-secgw has to start.
PATIENCE = 30


def compare(gateway: dict[str, float]) -> dict[str, Any]:
    """Return ipsec-secgw's CPU time over that of the gateway, by the length of packets; null without it in .venv.

    Args:
        gateway: the figures of the gateway's step.
    """
    result = dict[str, Any]()
    for length in LENGTHS:
        spent = protect(length) if SECGW.exists() else None
        own = gateway[f"protect_ns_{length}"] + gateway[f"fill_ns_{length}"]
        result[f"secgw_ns_{length}"] = spent and round(spent, 1)
        result[f"secgw_speedup_{length}"] = spent and round(spent / own, 2)
    return result


def protect(length: int) -> float:
    """Return the nanoseconds of CPU time in which ipsec-secgw protects a packet of this length."""
    with tempfile.TemporaryDirectory(prefix="secgw-") as name:
        directory = Path(name)
        (directory / "secgw.cfg").write_text(rules(256))
        packet = IP(src="10.2.0.5", dst="10.1.0.5", proto=253, flags="DF") / Raw(bytes(length - 20))
        wrpcap(str(directory / "in.pcap"), [Ether(src=STATION, dst=PORT) / packet] * 64)
        devices = [
            f"--vdev=net_pcap0,rx_pcap={directory / 'in.pcap'},infinite_rx=1",
            "--vdev=net_null0,no-rx=1",
            "--vdev=crypto_aesni_gcm0",
        ]
        command = [str(SECGW), "--lcores", "0", "--no-huge", "-m", "512", "--no-pci", *devices, "--"]
        command += ["-p", "3", "-P", "-u", "2", "-l", "-e", "-w", "64", "--config=(0,0,0),(1,0,0)", "--txoffload", "0"]
        command += ["-f", str(directory / "secgw.cfg")]
        with (
            (directory / "log").open("w") as log,
            subprocess.Popen(
                command, env={**os.environ, "RUNTIME_DIRECTORY": name}, stdout=log, stderr=subprocess.STDOUT
            ) as process,
        ):
            try:
                with telemetry(process, directory) as asked:
                    while sent(asked) == 0:
                        time.sleep(0.05)
                    before = sent(asked), cpu_ns(process.pid)
                    time.sleep(SECONDS)
                    after = sent(asked), cpu_ns(process.pid)
            finally:
                process.kill()
        return (after[1] - before[1]) / (after[0] - before[0])


def telemetry(process: subprocess.Popen[bytes], directory: Path) -> socket.socket:
    """Connect to DPDK's telemetry.

    Raises:
        RuntimeError: ipsec-secgw has not started.
    """
    path, end = directory / "dpdk/rte/dpdk_telemetry.v2", time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"ipsec-secgw has not started: {(directory / 'log').read_text()[-2000:]}")
        time.sleep(0.05)
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.settimeout(PATIENCE)
    asked.connect(str(path))
    asked.recv(1024)
    return asked


def sent(asked: socket.socket) -> int:
    """Return how many packets ipsec-secgw has sent."""
    asked.send(b"/ethdev/stats,1")
    return json.loads(asked.recv(65536))["/ethdev/stats"]["opackets"]
