"""Figures 9, 11 and queues for 14: what functions cost, from CPU times in memory and counted bytes.

Time on the sNIC's cores is time on this machine's by UNO's ratios (constants.toml); no process is slowed here.
"""

import json
import random
import subprocess
from typing import Any

from nf_benches import building
from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation

Constants = dict[str, dict[str, float]]
UDP_BYTES = 1280
"""UNO 5.1: of the clear-text packets of Fig. 9."""
FLOWS = 10_000
_ETHERNET = 14


def pcie_bytes(udp_bytes: int = UDP_BYTES) -> list[dict[str, Any]]:
    """Count the bytes that cross PCIe for each packet that leaves the host protected, by where SECGW runs (Fig. 9)."""
    clear = IP(src="10.0.0.1", dst="10.0.1.1") / UDP(sport=1, dport=2) / bytes(udp_bytes - 28)
    gateway = SecurityAssociation(
        ESP, spi=1, crypt_algo="AES-GCM", crypt_key=bytes(20), tunnel_header=IP(src="192.0.2.1", dst="192.0.2.2")
    )
    plain, protected = len(bytes(clear)) + _ETHERNET, len(bytes(gateway.encrypt(clear))) + _ETHERNET
    ways = {
        "sNIC": [plain],
        "x86, AES-NI": [protected],
        "x86, QAT": [plain, protected, protected],  # request, response, and out
    }
    return [{"way": way, "bytes": sum(parts), "over_snic": sum(parts) / plain} for way, parts in ways.items()]


def costs() -> dict[str, float]:
    """Measure both functions: ns of CPU for a packet of 1,400 bytes, L7FW's after its verdict, with 10,000 flows."""
    throughput = building.build_example("nf-ipsec", "throughput")
    cost = building.build_example("nf-firewall", "cost")
    gateway = json.loads(subprocess.run([throughput], check=True, capture_output=True).stdout.splitlines()[-1])
    firewall = subprocess.run([cost, "after", str(FLOWS), "500000"], check=True, capture_output=True)
    return {
        "secgw_ns": gateway["open_ns_1400"],
        "l7fw_ns": json.loads(firewall.stdout)["after_verdict_ns"],
        "frame_bytes": 1400,
    }


def energy(measured: dict[str, float], constants: Constants) -> list[dict[str, Any]]:
    """Return the added watts per Gbps of a function on a host core and on sNIC cores (Fig. 11)."""
    packets = 1e9 / (8 * measured["frame_bytes"])
    watts, slow = constants["energy"], constants["snic"]
    rows = []
    for name in ("l7fw", "secgw"):
        busy = packets * measured[f"{name}_ns"] * 1e-9
        host = busy * watts["host_core"]
        # The engine works for SECGW instead of cores, for the same time.
        snic = busy * (slow[name] * watts["snic_core"] + (watts["engine"] if name == "secgw" else 0.0))
        rows.append({"function": name, "host_w": host, "snic_w": snic, "ratio": host / snic})
    return rows


def latency(measured: dict[str, float], constants: Constants, packets: int = 40_000) -> list[dict[str, Any]]:
    """Simulate the chain SECGW, L7FW, SECGW in the four deployments of Fig. 12; mean round trip in us (Fig. 14).

    Packets arrive at random (Poisson) and wait in a bounded queue before each function. A hop between the host and the
    sNIC costs one crossing of PCIe.
    """
    given, slow = constants["latency"], constants["snic"]
    secgw, l7fw = measured["secgw_ns"] / 1000, given["l7fw_us"]
    host = [secgw, l7fw, secgw]
    full = [secgw * slow["secgw"], l7fw * slow["l7fw"], secgw * slow["secgw"]]
    partial = [full[0], l7fw, full[2]]
    ways = (
        # name, service times, crossings one way, Gbps
        ("standalone host", host, 1, given["gbps"]),
        ("switch offload", host, 7, given["gbps"]),
        ("UNO full", full, 1, given["gbps"]),
        ("UNO partial", partial, 3, given["partial_gbps"]),
    )
    rows = []
    for name, services, crossed, gbps in ways:
        apart = 8 * given["frame_bytes"] / (gbps * 1000)
        # UNO scales L7FW out with the load; one core of it gets a core's part of the traffic.
        apart *= max(1.0, gbps / given["gbps"])
        waited = _queues(services, apart, int(slow["slots"]), packets)
        rows.append(
            {"way": name, "gbps": gbps, "round_trip_us": 2 * (waited + crossed * constants["pcie"]["crossing_us"])}
        )
    return rows


def _queues(services: list[float], apart: float, slots: int, packets: int) -> float:
    """Return the mean us of a packet in queues in series, each with room for some packets."""
    source = random.Random(1)
    now, total, passed = 0.0, 0.0, 0
    free = [0.0] * len(services)
    for number in range(packets):
        now += source.expovariate(1 / apart)
        at: float | None = now
        for place, service in enumerate(services):
            assert at is not None
            if free[place] - at > slots * service:
                at = None
                break
            free[place] = max(free[place], at) + service
            at = free[place]
        if at is not None and number >= packets // 2:
            total += at - now
            passed += 1
    return total / passed
