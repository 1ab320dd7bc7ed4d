"""The gateway beside DPDK's ipsec-secgw, with extended sequence numbers: each opens what the other protects."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import rdpcap, wrpcap

from tests.nfs.test_ipsec import INBOUND, OUTBOUND, PORT, STATION, config, inner, key, network, replay

SECGW = Path(sys.executable).with_name("ipsec-secgw")
NUMBERS = (0, 1, 2, 50)

pytestmark = pytest.mark.skipif(not SECGW.exists(), reason="ipsec-secgw is not in .venv: tools/prepare soak")


def rules(bits: int) -> str:
    """Return the peer's configuration: port 0 is toward its network, port 1 toward the gateway."""
    outbound, inbound = (key(bits, spi).hex(":") for spi in (OUTBOUND, INBOUND))
    algorithm = f"aead_algo aes-{bits}-gcm aead_key"
    every = "sport 0:65535 dport 0:65535"
    lines = [
        f"sp ipv4 out esp protect {INBOUND} pri 1 dst 10.1.0.0/24 {every}",
        f"sp ipv4 in esp protect {OUTBOUND} pri 1 dst 10.2.0.0/24 {every}",
        f"sa out {INBOUND} {algorithm} {inbound} mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1",
        f"sa in {OUTBOUND} {algorithm} {outbound} mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2",
        "rt ipv4 dst 10.2.0.0/24 port 0",
        "rt ipv4 dst 192.0.2.1/32 port 1",
        f"neigh port 0 {STATION}",
        f"neigh port 1 {PORT}",
    ]
    return "".join(f"{line}\n" for line in lines)


def pass_through(
    directory: Path, bits: int, plain: Sequence[Packet], sealed: Sequence[Packet], good: Sequence[Packet] | None = None
) -> tuple[list[Packet], list[Packet]]:
    """Have ipsec-secgw open and protect packets; return both.

    Args:
        directory: for files.
        bits: of the keys.
        plain: the packets to protect.
        sealed: the packets to open.
        good: those of ``sealed`` that it must open, the last one among them; default: all.
    """
    (directory / "secgw.cfg").write_text(rules(bits))
    devices = []
    for port, frames in enumerate((plain, sealed)):
        received, sent = (directory / f"{way}{port}.pcap" for way in ("rx", "tx"))
        wrpcap(str(received), frames)
        devices += ["--vdev", f"net_pcap{port},rx_pcap={received},tx_pcap={sent}"]
    command = [str(SECGW), "--lcores", "0", "--no-huge", "-m", "512", "--no-pci", "--no-telemetry", *devices]
    command += ["--vdev=crypto_openssl0", "--"]
    command += ["-p", "3", "-P", "-u", "2", "-l", "-e", "-w", "64", "--config=(0,0,0),(1,0,0)", "--txoffload", "0"]
    command += ["-f", str(directory / "secgw.cfg")]
    wrpcap(str(directory / "good.pcap"), sealed if good is None else good)
    expected = [(directory / name).stat().st_size for name in ("rx0.pcap", "good.pcap")]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env={**os.environ, "RUNTIME_DIRECTORY": str(directory)}, **output) as process:
        # It runs until it is ended. Both directions have packets of the same lengths.
        end = time.monotonic() + 60
        sizes = list[int]()
        while sizes != expected and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
            files = [directory / f"tx{port}.pcap" for port in (0, 1)]
            sizes = [each.stat().st_size if each.exists() else 0 for each in files]
        process.terminate()
        said = process.communicate(timeout=30)[0]
    assert sizes == expected, said
    opened, protected = (list(rdpcap(str(directory / f"tx{port}.pcap"))) for port in (0, 1))
    return opened, protected


@pytest.mark.parametrize("bits", [128, 256])
def test_secgw_and_the_gateway_open_what_the_other_protects(tmp_path: Path, bits: int) -> None:
    settings = config(4, bits, udp=False, esn=True)
    ours = [inner(4, number) for number in NUMBERS]
    theirs = [inner(4, number, back=True) for number in NUMBERS]
    sealed, _ = replay(tmp_path, settings, [Ether(src=STATION, dst=PORT) / packet for packet in ours])
    plain = [Ether(src=STATION, dst=PORT) / packet for packet in theirs]
    opened, protected = pass_through(tmp_path, bits, plain, sealed)
    assert [bytes(frame.payload) for frame in opened] == [bytes(network(packet)) for packet in ours]
    frames = [Ether(src=STATION, dst=PORT) / Ether(bytes(frame)).payload for frame in protected]
    delivered, said = replay(tmp_path, settings, frames)
    assert said["packets_dropped"] == {}
    assert [bytes(frame.payload) for frame in delivered] == [bytes(network(packet)) for packet in theirs]


def in_place_of_secgw(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of the gateway at the other end of the tunnel."""
    tunnel = settings["tunnels"][0]
    selectors = [{"local": each["remote"], "remote": each["local"]} for each in tunnel["selectors"]]
    ends = {"local": tunnel["remote"], "remote": tunnel["local"], "selectors": selectors}
    keys = {"outbound": tunnel["inbound"], "inbound": tunnel["outbound"]}
    stations = [{"address": address, "mac": STATION} for address in ("10.2.0.5", "192.0.2.1")]
    return {
        "interfaces": [{"addresses": ["10.2.0.1/24", "192.0.2.2/24"]}],
        "neighbours": stations,
        "tunnels": [{**tunnel, **ends, **keys, "selectors": selectors[:1]}],
    }


def test_secgw_and_the_gateway_drop_the_same_packets(tmp_path: Path) -> None:
    settings = config(4, 256, udp=False, esn=True)
    ours = [inner(4, number) for number in NUMBERS]
    theirs = [inner(4, number, back=True) for number in NUMBERS]
    sealed, _ = replay(tmp_path, settings, [Ether(src=STATION, dst=PORT) / packet for packet in ours])
    good = [bytes(Ether(src=STATION, dst=PORT) / frame.payload) for frame in sealed]
    forged = good[2][:-1] + bytes([good[2][-1] ^ 1])
    cut = IP(good[2][14:54])
    del cut.len, cut.chksum
    truncated = bytes(Ether(src=STATION, dst=PORT) / cut)
    every = [good[0], good[0], good[1], forged, truncated, good[0], good[2], good[1], good[3]]
    frames = [Ether(frame) for frame in every]
    plain = [Ether(src=STATION, dst=PORT) / packet for packet in theirs]
    opened, _ = pass_through(tmp_path, 256, plain, frames, [Ether(frame) for frame in good])
    delivered, said = replay(tmp_path, in_place_of_secgw(settings), frames)
    # The gateway is a router; ipsec-secgw leaves the time to live as it is.
    assert [bytes(frame.payload) for frame in opened] == [bytes(network(packet)) for packet in ours]
    assert [bytes(frame.payload) for frame in delivered] == [bytes(network(network(packet))) for packet in ours]
    assert said["packets_dropped"] == {"esp: replayed": 3, "esp: forged": 1, "esp: truncated": 1}
    assert len(every) - len(opened) == 5
