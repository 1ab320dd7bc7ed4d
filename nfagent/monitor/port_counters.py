"""Parses ``ovs-appctl dpctl/show -s``: traffic through each interface of a data path."""

import re
from dataclasses import dataclass

_PORT = re.compile(r"\s+port [0-9]+: (\S+)")
_PACKETS = re.compile(r"\s+(RX|TX) packets:([0-9]+)")
_BYTES = re.compile(r"\s+RX bytes:([0-9]+).*?TX bytes:([0-9]+)")


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters since the interface was created. ``rx``: into the switch."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0


def parse_show(text: str) -> dict[str, PortCounters]:
    """Return counters by interface, without interfaces whose counters are incomplete."""
    found: dict[str, PortCounters] = {}
    name, packets = "", dict[str, int]()
    for line in text.splitlines():
        if match := _PORT.match(line):
            name, packets = match[1], {}
        elif match := _PACKETS.match(line):
            packets[match[1]] = int(match[2])
        elif (match := _BYTES.match(line)) and name and len(packets) == 2:
            found[name] = PortCounters(packets["RX"], int(match[1]), packets["TX"], int(match[2]))
    return found
