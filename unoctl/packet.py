"""A packet inside the datapath: bytes, and where its layers start.

Open vSwitch finds the layers once, when a packet is received or recirculated, and then only shifts them as headers are
pushed and popped; an action on a layer that was not found does nothing. Predicting bytes needs the same, so
:meth:`Packet.extract` finds layers as Open vSwitch 3.1 does (miniflow_extract) and nothing else looks into the bytes
for them.
"""

from dataclasses import dataclass

from unoctl.errors import PacketError

ETH_LENGTH = 14
TYPE_IPV4 = 0x0800
TYPE_ARP = 0x0806
TYPE_RARP = 0x8035
TYPE_VLAN = 0x8100
TYPE_QINQ = 0x88A8
TYPE_IPV6 = 0x86DD
TYPE_NSH = 0x894F
VLAN_TYPES = (TYPE_VLAN, TYPE_QINQ)
MPLS_TYPES = (0x8847, 0x8848)
PROTO_TCP = 6
PROTO_UDP = 17
PROTO_ICMPV6 = 58
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60
EXTENSIONS = (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION)
IPV4_MIN = 20
IPV6_LENGTH = 40
# Open vSwitch's notation: Ethernet, or a bare packet of an Ethernet type.
PACKET_ETHERNET = 0
_SNAP = b"\xaa\xaa\x03\0\0\0"


@dataclass
class Packet:
    """Bytes with layer offsets; None: that layer was not found.

    Attributes:
        data: the frame.
        packet_type: :data:`PACKET_ETHERNET`, or the Ethernet type of a packet without an Ethernet header.
        mpls, l3, l4: offsets of the first MPLS label, the network and the transport header.
        padding: bytes behind the IP packet.
        cut: bytes to leave off at the next output (``trunc``).
        conditions: what has to hold for these bytes to be here, for people ("meter 3 lets it pass").
        mark: the packet's ``skb_mark``.
        priority: its ``skb_priority``.
    """

    data: bytearray
    packet_type: int = PACKET_ETHERNET
    vlan_limit: int = 1
    mpls: int | None = None
    l3: int | None = None
    l4: int | None = None
    padding: int = 0
    cut: int = 0
    conditions: tuple[str, ...] = ()
    mark: int = 0
    priority: int = 0

    @classmethod
    def received(cls, data: bytes, vlan_limit: int = 1) -> "Packet":
        """A frame as it comes in at a port.

        Args:
            data: the frame, without FCS.
            vlan_limit: how many VLAN tags the datapath looks behind ("Max VLAN headers").

        Raises:
            PacketError: shorter than an Ethernet header.
        """
        if len(data) < ETH_LENGTH:
            raise PacketError(f"{len(data)} bytes are no Ethernet frame; expected at least {ETH_LENGTH}")
        packet = cls(bytearray(data), vlan_limit=vlan_limit)
        packet.extract()
        return packet

    def clone(self) -> "Packet":
        """A copy that changes independently."""
        return Packet(
            bytearray(self.data),
            self.packet_type,
            self.vlan_limit,
            self.mpls,
            self.l3,
            self.l4,
            self.padding,
            self.cut,
            self.conditions,
            self.mark,
            self.priority,
        )

    def sent(self) -> bytes:
        """The bytes that an output sends now."""
        return bytes(self.data[: len(self.data) - self.cut])

    @property
    def l4_size(self) -> int:
        """Bytes of transport header and payload, without padding; 0 where there is no transport layer."""
        return 0 if self.l4 is None else len(self.data) - self.l4 - self.padding

    @property
    def inner_labels(self) -> bool:
        """Whether there are MPLS labels below the first."""
        return self.mpls is not None and len(self.data) >= self.mpls + 4 and not self.data[self.mpls + 2] & 1

    def extract(self) -> None:
        """Parse the layers again."""
        self.mpls = self.l3 = self.l4 = None
        self.padding = 0
        found = self._link_layer()
        if found is None:
            return
        ethertype, offset = found
        if ethertype in MPLS_TYPES:
            self.mpls = offset
            offset = self._skip_labels(offset)
        self.l3 = offset
        if ethertype == TYPE_IPV4:
            self._ipv4(offset)
        elif ethertype == TYPE_IPV6:
            self._ipv6(offset)

    def resize(self, offset: int, insert: bytes = b"", remove: int = 0) -> None:
        """Put bytes in before the MPLS labels, or take some out there; every layer behind them shifts."""
        if self.mpls is not None:
            self.mpls += len(insert) - remove
        self.resize_labels(offset, insert, remove)

    def resize_labels(self, offset: int, insert: bytes = b"", remove: int = 0) -> None:
        """Put bytes in at the start of the MPLS labels, or take some out; the labels still start there."""
        self.data[offset : offset + remove] = insert
        change = len(insert) - remove
        if self.l3 is not None:
            self.l3 += change
        if self.l4 is not None:
            self.l4 += change

    def u16(self, offset: int) -> int:
        """Two bytes, big-endian."""
        return int.from_bytes(self.data[offset : offset + 2], "big")

    def put(self, offset: int, value: int, size: int) -> None:
        """Overwrite ``size`` bytes, big-endian."""
        self.data[offset : offset + size] = value.to_bytes(size, "big")

    def _link_layer(self) -> tuple[int, int] | None:
        """Ethernet type, and the offset behind it."""
        if self.packet_type != PACKET_ETHERNET:
            return self.packet_type, 0
        if len(self.data) < ETH_LENGTH:
            return None
        offset = 12
        for _ in range(self.vlan_limit):
            if self.u16(offset) not in VLAN_TYPES or len(self.data) < offset + 6:
                break
            offset += 4
        ethertype = self.u16(offset)
        offset += 2
        if ethertype < 0x600 and self.data[offset : offset + 6] == _SNAP and len(self.data) >= offset + 8:
            inner = self.u16(offset + 6)
            if inner >= 0x600:
                return inner, offset + 8
        return ethertype, offset

    def _skip_labels(self, offset: int) -> int:
        while len(self.data) >= offset + 4:
            offset += 4
            if self.data[offset - 2] & 1:
                break
        return offset

    def _ipv4(self, start: int) -> None:
        size = len(self.data) - start
        if size < IPV4_MIN:
            return
        header = (self.data[start] & 0xF) * 4
        total = self.u16(start + 2)
        if header < IPV4_MIN or size < header or total > size or header > total:
            return
        self.padding = size - total
        self.l4 = start + header

    def _ipv6(self, start: int) -> None:
        size = len(self.data) - start
        if size < IPV6_LENGTH:
            return
        payload = self.u16(start + 4)
        if payload + IPV6_LENGTH > size:
            return
        self.padding = size - IPV6_LENGTH - payload
        self.l4 = self._skip_extensions(start + IPV6_LENGTH, self.data[start + 6], payload)

    def _skip_extensions(self, offset: int, kind: int, left: int) -> int | None:
        """Offset behind the IPv6 extension headers; None where they are cut off."""
        while kind in EXTENSIONS:
            if left < 8:
                return None
            following = self.data[offset]
            length = extension_length(kind, self.data[offset + 1])
            later = kind == FRAGMENT and self.u16(offset + 2) & 0xFFF8
            if length > left:
                return None
            offset += length
            left -= length
            kind = following
            if later:
                break
        return offset


def extension_length(kind: int, length_field: int) -> int:
    """Bytes in an IPv6 extension header, from its own length field."""
    if kind == AUTHENTICATION:
        return (length_field + 2) * 4
    if kind == FRAGMENT:
        return 8
    return (length_field + 1) * 8
