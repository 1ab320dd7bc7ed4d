"""How close a `pcie` link comes to the speed at which a core copies memory: `bandwidth_share_1500` of `bench/pcie`.

A link that is shared memory cannot be faster than its two copies, into the ring and out of it. Open vSwitch's
`ovstest test-netdev-pcie benchmark`, which the patches add, makes a thread send batches of 32 packets and receive them
at the other end, and lets it copy as many bytes between as many buffers and as much memory as the two rings have, in
turns. Both are on one core and neither waits; CPU time counts. Four MiB of rings do not fit into a core's own cache.

- `bandwidth_share_1500`: the ring beside these copies: put, publish, get, copy, release. The aim is 0.9.
- `port_share_1500`: two network devices, as switches use them, beside the copies. They also allocate and free a packet,
  and clear its metadata, as any device of Open vSwitch does without a pool of packets.
- `path_share_1500`: packets that crossed both switches, beside those that both cores could copy `PATH_COPIES` times.
"""

import re
import subprocess
from pathlib import Path

# From host a, which sends by AF_PACKET, to host b's interface, a packet's bytes are copied by: host a's sendmmsg; veth,
# which makes room before them for XDP (skb_pp_cow_data); __xsk_rcv, into switch a's umem, where they stay until
# pcie_ring_put (lib/pcie-ring.c); pcie_packet_from_ring (lib/netdev-pcie.c); __netdev_afxdp_batch_send
# (lib/netdev-afxdp.c), into switch b's umem; __xsk_generic_xmit. A profile of Linux 6.18 shows these and no other.
PATH_COPIES = 7
_LINK_COPIES = 2
FIGURES = ("copy_ns_1500", "bandwidth_share_1500", "port_share_1500", "path_share_1500")
_LINE = re.compile(r"^(?P<name>\w+): (?P<ns>[0-9.]+) ns per packet", re.MULTILINE)


def measure(ovstest: Path, place: Path, frame: int, turns: int) -> dict[str, float]:
    """Return nanoseconds of CPU time for a packet to cross a link: by `memcpy` alone, `ring` and `netdev`.

    Args:
        ovstest: Open vSwitch's program for tests, of the patched build.
        place: an empty directory, for the link's socket.
        frame: bytes of a packet.
        turns: turns of each, some milliseconds long.
    """
    command = [ovstest, "test-netdev-pcie", "benchmark", place / "copies.sock", str(frame), str(turns)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    found = {match["name"]: float(match["ns"]) for match in _LINE.finditer(said.stdout)}
    if missing := {"memcpy", "ring", "netdev"} - found.keys():
        raise RuntimeError(f"{ovstest} printed no time of {', '.join(sorted(missing))}: {said.stdout!r}")
    return found


def shares(times: dict[str, float], packets_per_second: float | None, cores: int) -> dict[str, float | None]:
    """Return the figures of `bench/pcie`.

    Args:
        times: what `measure` returned.
        packets_per_second: the rate of the pair of switches with AF_XDP hosts; None: not measured.
        cores: the cores that hosts and switches have.
    """
    copy = times["memcpy"] / _LINK_COPIES
    path = None if packets_per_second is None else packets_per_second * PATH_COPIES * copy / (cores * 1e9)
    return {
        "copy_ns_1500": round(copy, 1),
        "bandwidth_share_1500": round(times["memcpy"] / times["ring"], 2),
        "port_share_1500": round(times["memcpy"] / times["netdev"], 2),
        "path_share_1500": None if path is None else round(path, 3),
    }
