"""The gateway beside another implementation: scapy opens what it protects, and it opens what scapy protects."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from tests.nfs.wire import nf_program

#: The port of `nf replay`, and the station behind it.
PORT, STATION = "02:00:00:00:00:00", "02:aa:00:00:00:05"
OUTBOUND, INBOUND = 0x1001, 0x2001
OUTER = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
INNER = {4: ("10.1.0.5", "10.2.0.5"), 6: ("fd01::5", "fd02::5")}


def key(bits: int, spi: int) -> bytes:
    """Return a key with its salt."""
    return bytes(((spi >> 12) + each) & 0xFF for each in range(bits // 8 + 4))


def config(outer: int, bits: int, *, udp: bool, esn: bool) -> dict[str, Any]:
    """Return a gateway with one interface for both sides."""
    own = ["10.1.0.1/24", "fd01::1/64", "192.0.2.1/24", "2001:db8::1/64"]
    stations = [INNER[4][0], INNER[6][0], OUTER[4][1], OUTER[6][1]]
    selectors = [
        {"local": "10.1.0.0/24", "remote": "10.2.0.0/24"},
        {"local": "fd01::/64", "remote": "fd02::/64"},
    ]
    local, remote = OUTER[outer]
    tunnel = {
        "name": "scapy",
        "local": local,
        "remote": remote,
        "encapsulation": "udp" if udp else "none",
        "selectors": selectors,
        "outbound": [{"spi": OUTBOUND, "secret": key(bits, OUTBOUND).hex(), "esn": esn}],
        "inbound": [{"spi": INBOUND, "secret": key(bits, INBOUND).hex(), "esn": esn}],
    }
    return {
        "interfaces": [{"addresses": own}],
        "neighbours": [{"address": each, "mac": STATION} for each in stations],
        "tunnels": [tunnel],
    }


def association(spi: int, outer: int, bits: int, *, udp: bool, esn: bool) -> SecurityAssociation:
    """Return scapy's side of an association."""
    ends = OUTER[outer] if spi == OUTBOUND else OUTER[outer][::-1]
    kind = {4: IP, 6: IPv6}[outer]
    return SecurityAssociation(
        ESP,
        spi=spi,
        crypt_algo="AES-GCM",
        crypt_key=key(bits, spi),
        tunnel_header=kind(src=ends[0], dst=ends[1]),
        esn_en=esn,
        esn=0,
        nat_t_header=UDP(sport=4500, dport=4500) if udp else None,
    )


def inner(version: int, number: int, *, back: bool = False) -> Packet:
    """Return a datagram between the protected hosts."""
    source, destination = INNER[version][:: -1 if back else 1]
    kind = {4: IP, 6: IPv6}[version]
    packet = kind(src=source, dst=destination) / UDP(sport=7, dport=number + 1) / Raw(b"secret" * number)
    return kind(bytes(packet))


def replay(directory: Path, settings: dict[str, Any], frames: Sequence[Packet]) -> tuple[list[Packet], dict[str, Any]]:
    """Send frames through the gateway; return those that it sends, and what `nf` says."""
    (directory / "ipsec.json").write_text(json.dumps(settings))
    wrpcap(str(directory / "in.pcap"), frames)
    files = [str(directory / name) for name in ("in.pcap", "out.pcap")]
    command = [nf_program(), "replay", "ipsec", *files, "--config", str(directory / "ipsec.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    out = [Ether(bytes(frame)) for frame in rdpcap(files[1])]
    return [frame for frame in out if frame.src == PORT and frame.dst == STATION], json.loads(ended.stdout)


def network(packet: Packet) -> Packet:
    """Return a packet as two routers forward it."""
    packet = packet.copy()
    if isinstance(packet, IP):
        packet.ttl -= 1
        del packet.chksum
    else:
        packet.hlim -= 1
    return packet.__class__(bytes(packet))


@pytest.mark.parametrize("esn", [False, True])
@pytest.mark.parametrize(("outer", "bits", "udp"), [(4, 128, False), (4, 256, True), (6, 256, False)])
def test_scapy_and_the_gateway_open_what_the_other_protects(
    tmp_path: Path, outer: int, bits: int, udp: bool, esn: bool
) -> None:
    settings = config(outer, bits, udp=udp, esn=esn)
    ours = [inner(version, number) for version in (4, 6) for number in (0, 1, 2, 3, 50)]
    theirs = [inner(version, number, back=True) for version in (4, 6) for number in (0, 1, 2, 3, 50)]
    sender = association(INBOUND, outer, bits, udp=udp, esn=esn)
    sealed = [sender.encrypt(packet) for packet in theirs]
    frames = [Ether(src=STATION, dst=PORT) / packet for packet in (*ours, *sealed)]
    out, said = replay(tmp_path, settings, frames)
    assert said["packets_dropped"] == {}
    assert len(out) == len(frames)
    receiver = association(OUTBOUND, outer, bits, udp=udp, esn=esn)
    opened = [receiver.decrypt(frame.payload) for frame in out[: len(ours)]]
    assert [bytes(packet) for packet in opened] == [bytes(network(packet)) for packet in ours]
    assert [bytes(frame.payload) for frame in out[len(ours) :]] == [bytes(network(packet)) for packet in theirs]


def test_what_others_protect_wrongly_is_dropped_by_reason(tmp_path: Path) -> None:
    sender = association(INBOUND, 4, 128, udp=False, esn=False)
    good = sender.encrypt(inner(4, 3, back=True))
    forged = IP(bytes(good)[:-1] + b"\0")
    stranger = association(INBOUND, 4, 128, udp=False, esn=False)
    stranger.crypt_key = bytes(16)
    elsewhere = IP(src="10.3.0.1", dst="10.1.0.5") / UDP() / Raw(b"x")
    frames = [
        Ether(src=STATION, dst=PORT) / packet
        for packet in (
            good,
            good,
            forged,
            sender.encrypt(elsewhere),
            stranger.encrypt(inner(4, 3, back=True), seq_num=90),
            IP(src="192.0.2.2", dst="192.0.2.1", proto=50) / Raw(b"short"),
        )
    ]
    out, said = replay(tmp_path, config(4, 128, udp=False, esn=False), frames)
    assert len(out) == 1
    assert said["packets_dropped"] == {
        "esp: replayed": 2,
        "esp: selector": 1,
        "esp: forged": 1,
        "esp: truncated": 1,
    }


def decrypted(capture: Path, outer: int, secret: bytes) -> list[list[str]]:
    """Return what tshark finds in ESP packets: whether the check value is right, the UDP port, and the payload."""
    association = [f"IPv{outer}", "*", "*", hex(OUTBOUND), "AES-GCM with 16 octet ICV [RFC4106]", f"0x{secret.hex()}"]
    table = ",".join(f'"{each}"' for each in (*association, "NULL", ""))
    settings = ["esp.enable_encryption_decode:TRUE", "esp.enable_authentication_check:TRUE", f"uat:esp_sa:{table}"]
    fields = ["esp.icv_good", "udp.dstport", "udp.payload"]  # of the inner datagram: the last one
    command = ["tshark", "-n", "-r", str(capture), "-Y", "esp", "-T", "fields", "-E", "occurrence=l"]
    command += [word for setting in settings for word in ("-o", setting)]
    command += [word for field in fields for word in ("-e", field)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in ended.stdout.splitlines()]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize(("outer", "bits", "udp"), [(4, 128, False), (4, 256, True), (6, 256, False)])
def test_tshark_decrypts_what_the_gateway_sends(tmp_path: Path, outer: int, bits: int, udp: bool) -> None:
    # tshark 4.0 knows no extended sequence numbers.
    ours = [inner(version, number) for version in (4, 6) for number in (1, 2, 50)]
    frames = [Ether(src=STATION, dst=PORT) / packet for packet in ours]
    replay(tmp_path, config(outer, bits, udp=udp, esn=False), frames)
    found = decrypted(tmp_path / "out.pcap", outer, key(bits, OUTBOUND))
    expected = [["1", str(number + 1), (b"secret" * number).hex()] for _ in (4, 6) for number in (1, 2, 50)]
    assert found == expected
