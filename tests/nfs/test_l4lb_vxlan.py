"""Mode vxlan against scapy, which builds the expected frames."""

import json
import random
import subprocess
from pathlib import Path

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from tests.nfs.wire import nf_program

PORT = "02:00:00:00:00:00"
"""The address of the port of `nf replay`."""
ROUTER = "02:aa:00:00:00:01"
BACKENDS = {"10.0.0.11": "02:bb:00:00:00:11", "fd00::11": "02:bb:00:00:00:12"}
NETWORKS = {"10.0.0.11": 0xFFFFFF, "fd00::11": 0}
STATION = "52:54:00:12:34:56"
OWN = {"10.0.0.11": "10.0.0.2", "fd00::11": "fd00::2"}


def vips() -> list[dict[str, object]]:
    """Return VIPs of both IP versions and protocols, each with one backend; those with odd ports are behind IPv6."""
    return [
        {
            "name": f"{address} {protocol} {port}",
            "address": address,
            "port": port,
            "protocol": protocol,
            "mode": "vxlan",
            "vni": NETWORKS[backend],
            "backends": [{"name": "a", "address": backend, "inner_mac": STATION}],
        }
        for address in ("192.0.2.1", "2001:db8::1")
        for protocol in ("tcp", "udp")
        for port, backend in ((80, "10.0.0.11"), (81, "fd00::11"))
    ]


def configuration() -> dict[str, object]:
    neighbours = [{"address": address, "mac": mac} for address, mac in BACKENDS.items()]
    interface = {"addresses": ["10.0.0.2/24", "fd00::2/64"], "mtu": 9000}
    return {"interfaces": [interface], "neighbours": neighbours, "vips": vips()}


def random_packet(rng: random.Random) -> Packet:
    """Return a client's IP packet."""
    traffic_class, hops = rng.randrange(256), rng.randrange(1, 256)
    if rng.random() < 0.5:
        source = f"198.51.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        ip = IP(src=source, dst="192.0.2.1", tos=traffic_class, ttl=hops, id=rng.randrange(65536))
    else:
        label = rng.randrange(1 << 20)
        ip = IPv6(
            src=f"2001:db8:1::{rng.randrange(1, 65536):x}", dst="2001:db8::1", tc=traffic_class, hlim=hops, fl=label
        )
    ports = {"sport": rng.randrange(1, 65536), "dport": rng.choice((80, 81))}
    transport = UDP(**ports) if rng.random() < 0.5 else TCP(**ports, flags=rng.choice("SA"), seq=rng.randrange(1 << 32))
    # Twice, so that lengths and checksums are those of a packet from the wire.
    return ip.__class__(bytes(ip / transport / Raw(rng.randbytes(rng.choice((0, 1, 7, 500, 1401))))))


def expected(packet: Packet, tags: list[int], source_port: int) -> Packet:
    """Build the frame toward the backend."""
    backend = "fd00::11" if packet.dport == 81 else "10.0.0.11"
    traffic_class = packet.tos if packet.version == 4 else packet.tc
    frame = Ether(src=PORT, dst=BACKENDS[backend])
    for tag in tags:
        frame /= Dot1Q(vlan=tag)
    if backend == "10.0.0.11":
        frame /= IP(src=OWN[backend], dst=backend, tos=traffic_class, flags="DF", id=0, ttl=64)
        frame /= UDP(sport=source_port, dport=4789, chksum=0)
    else:
        frame /= IPv6(src=OWN[backend], dst=backend, tc=traffic_class, hlim=64)
        frame /= UDP(sport=source_port, dport=4789)
    return frame / VXLAN(flags="Instance", vni=NETWORKS[backend]) / Ether(src=PORT, dst=STATION) / packet


def test_frames_are_those_that_scapy_builds(directory: Path) -> None:
    rng = random.Random(7348)
    sent = []
    for _ in range(200):
        tags = [rng.randrange(1, 4095) for _ in range(rng.choice((0, 0, 1, 2)))]
        frame = Ether(src=ROUTER, dst=PORT)
        for tag in tags:
            frame /= Dot1Q(vlan=tag)
        sent.append((frame, tags, random_packet(rng)))
    wrpcap(str(directory / "in.pcap"), [frame / packet for frame, _, packet in sent])
    (directory / "l4lb.json").write_text(json.dumps(configuration()))
    command = [nf_program(), "replay", "l4lb", directory / "in.pcap", directory / "out.pcap"]
    subprocess.run([*command, f"--config={directory}/l4lb.json"], check=True, capture_output=True)
    frames = [frame for frame in rdpcap(str(directory / "out.pcap")) if frame.dst in BACKENDS.values()]
    assert len(frames) == len(sent)
    for frame, (_, tags, packet) in zip(frames, sent, strict=True):
        assert frame[UDP].sport >= 49152
        assert bytes(frame) == bytes(expected(packet, tags, frame[UDP].sport)), packet.summary()
