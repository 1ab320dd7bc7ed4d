"""Frames of many UDP flows to one virtual IP address, and records of those that arrive, rewritten or in tunnels.

A frame identifies itself; everything after its headers is little-endian:

    offset  0  Ethernet   14  IPv4   34  UDP   42  magic "UNOf"   46  number   54  sent at (ns since 1970)   62  flow

Frame ``number`` (from 0) belongs to flow ``number`` modulo the number of flows. In an IP-in-IP tunnel all offsets are
20 bytes higher. The (outer) destination identifies the backend. Where frames leave in bursts, all frames of a burst
belong to one flow, and the bursts to the flows in turn.
"""

import ipaddress
import socket
import struct
from dataclasses import dataclass

from lab.listening import Field

FRAME_BYTES = 66
MAGIC = b"UNOf"

RECORD = struct.Struct("<QQI4sqq")
"""A recorder's record of an arrival: number, sent at (ns), flow, backend's address, when: seconds, nanoseconds."""

_MAGIC_AT = 42
_MARK = struct.Struct("<QQI")
_MARK_AT = 46
_BACKEND_AT = 30
_PORTS = 64  # per client address
_APART = 997
_CLIENTS = int(ipaddress.IPv4Address("100.64.0.0"))
_PART = struct.Struct("<4sQQI")
# Linux, include/uapi/linux/virtio_net.h: flags (the checksum is partial), kind, bytes of headers, bytes of each frame's
# own part, where the checksum begins and is.
_OFFLOAD = struct.pack("<BBHHHH", 1, 5, _MAGIC_AT, _PART.size, 34, 6)


@dataclass(frozen=True)
class Form:
    """The form in which frames arrive: their outer protocol, and the bytes of headers in front of theirs."""

    protocol: int
    more_bytes: int

    @property
    def filter(self) -> tuple[Field, Field]:
        """Return the filter that recognises the arrivals."""
        magic = Field.word(_MAGIC_AT + self.more_bytes, int.from_bytes(MAGIC, "big"))
        return Field.byte(23, self.protocol), magic

    def note(self, frame: bytearray, arrived: bytes) -> bytearray:
        """Return the `RECORD` of a frame that `filter` recognised.

        Args:
            frame: of ``FRAME_BYTES`` and ``more_bytes`` at least.
            arrived: the kernel's struct timespec of its arrival.
        """
        mark = _MARK_AT + self.more_bytes
        return frame[mark : mark + _MARK.size] + frame[_BACKEND_AT : _BACKEND_AT + 4] + arrived


FORMS = {"ipip": Form(socket.IPPROTO_IPIP, 20), "nat": Form(socket.IPPROTO_UDP, 0)}
"""By the load balancer's mode."""


@dataclass(frozen=True)
class Service:
    """Destination of the flows: MAC address of the network function, virtual IP address and UDP port."""

    mac: str
    address: str
    port: int


class FlowFrames:
    """Builds the frames.

    Args:
        source: MAC address of the sender.
        service: their destination.
        flows: number of flows, at most 2**28.
        renewed: whether the flows of each round have other ports than those of the round before.
    """

    def __init__(self, source: str, service: Service, flows: int, *, renewed: bool = False) -> None:
        self.flows = flows
        self._renewed = renewed
        ethernet = bytes.fromhex((service.mac + source).replace(":", "")) + b"\x08\x00"
        ip = struct.pack(">BBHIBBHI4s", 0x45, 0, FRAME_BYTES - 14, 0, 64, 17, 0, 0, _packed(service.address))
        udp = struct.pack(">HHHH", 0, service.port, FRAME_BYTES - 34, 0)
        self._frame = bytearray(ethernet + ip + udp + MAGIC + bytes(_MARK.size))
        self._constant_sum = sum(struct.unpack(">10H", ip))

    def make(self, number: int, now_ns: int) -> bytearray:
        """Return a frame. The next call returns the same buffer, overwritten."""
        flow = number % self.flows
        client = _CLIENTS + flow // _PORTS
        total = self._constant_sum + (client >> 16) + (client & 0xFFFF)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">HI", self._frame, 24, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF, client)
        more = number // self.flows % _APART if self._renewed else 0
        struct.pack_into(">H", self._frame, 34, 1024 + flow % _PORTS * _APART + more)
        _MARK.pack_into(self._frame, _MARK_AT, number, now_ns, flow)
        return self._frame

    def burst(self, number: int, count: int, now_ns: int) -> bytes:
        """Return ``count`` frames of one flow, the first is ``number``, as one that the kernel divides.

        Segmentation offload makes a heavy flow's frames arrive like this: all of them at once. In front of the frame is
        the ``virtio_net_hdr`` that a packet socket with PACKET_VNET_HDR takes.
        """
        flow = number // count % self.flows
        headers = self.make(flow, now_ns)[:_MAGIC_AT]
        parts = b"".join(_PART.pack(MAGIC, number + each, now_ns, flow) for each in range(count))
        udp = 8 + len(parts)
        struct.pack_into(">H", headers, 16, 20 + udp)
        struct.pack_into(">H", headers, 24, 0)
        struct.pack_into(">H", headers, 24, ~_sum(headers[14:34]) & 0xFFFF)
        struct.pack_into(">H", headers, 38, udp)
        struct.pack_into(">H", headers, 40, _sum(headers[26:34] + struct.pack(">HH", socket.IPPROTO_UDP, udp)))
        return _OFFLOAD + headers + parts


def _sum(data: bytes | bytearray) -> int:
    """Return the sum of the 16-bit words in ones' complement."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _packed(address: str) -> bytes:
    return ipaddress.IPv4Address(address).packed
