"""A packet in the datapath: its bytes, and where its headers start.

Open vSwitch finds the headers once, when a packet is received or recirculated, and shifts them as tags and labels come
and go. :meth:`Packet.parse` finds them as miniflow_extract() of Open vSwitch 3.1 does.
"""

from dataclasses import dataclass, replace

ETH_LENGTH = 14
IPV4_MIN = 20
IPV6_LENGTH = 40
TYPE_IPV4, TYPE_IPV6, TYPE_VLAN = 0x0800, 0x86DD, 0x8100
VLAN_TYPES = (TYPE_VLAN, 0x88A8)
MPLS_TYPES = (0x8847, 0x8848)


@dataclass
class Packet:
    """Bytes with the offsets of headers; None: the packet has no such header.

    Attributes:
        data: the frame, without FCS.
        vlan_limit: the number of VLAN tags that the datapath looks behind.
        mpls, network, transport: offsets of the first MPLS label, the network and the transport header.
        padding: bytes after the IP packet.
        cut: bytes that the next output leaves off (``trunc``).
        mark: the packet's ``skb_mark``.
        conditions: what has to hold for the packet to be here with these bytes ("meter 3 lets it pass").
    """

    data: bytearray
    vlan_limit: int
    conditions: tuple[str, ...] = ()
    mpls: int | None = None
    network: int | None = None
    transport: int | None = None
    padding: int = 0
    cut: int = 0
    mark: int = 0

    @classmethod
    def received(cls, data: bytes, vlan_limit: int = 1, conditions: tuple[str, ...] = ()) -> "Packet":
        """Make the packet of a received frame."""
        packet = cls(bytearray(data), vlan_limit, conditions)
        packet.parse()
        return packet

    def clone(self) -> "Packet":
        """Return an independent copy."""
        return replace(self, data=bytearray(self.data))

    def sent(self) -> bytes:
        """Return the bytes that an output would send now."""
        return bytes(self.data[: len(self.data) - self.cut])

    def u16(self, offset: int) -> int:
        """Return two bytes, big-endian."""
        return int.from_bytes(self.data[offset : offset + 2], "big")

    @property
    def inner_labels(self) -> bool:
        """Whether there are MPLS labels below the first."""
        return self.mpls is not None and len(self.data) >= self.mpls + 4 and not self.data[self.mpls + 2] & 1

    def resize(self, offset: int, insert: bytes = b"", remove: int = 0) -> None:
        """Insert or remove bytes in front of the network header."""
        self.data[offset : offset + remove] = insert
        change = len(insert) - remove
        if self.mpls is not None and offset < self.mpls:
            self.mpls += change
        if self.network is not None:
            self.network += change
        if self.transport is not None:
            self.transport += change

    def parse(self) -> None:
        """Find the headers again."""
        self.mpls = self.network = self.transport = None
        self.padding = 0
        at = 12
        for _ in range(self.vlan_limit):
            if self.u16(at) in VLAN_TYPES and len(self.data) >= at + 6:
                at += 4
        ethertype = self.u16(at)
        at += 2
        if ethertype < 0x600:  # IEEE 802.3: a length
            return
        if ethertype in MPLS_TYPES:
            self.mpls = at
            while len(self.data) >= at + 4:
                at += 4
                if self.data[at - 2] & 1:
                    break
        self.network = at
        size = len(self.data) - at
        if ethertype == TYPE_IPV4 and size >= IPV4_MIN:
            header, total = (self.data[at] & 0xF) * 4, self.u16(at + 2)
            if IPV4_MIN <= header <= total <= size:
                self.transport, self.padding = at + header, size - total
        elif ethertype == TYPE_IPV6 and size >= IPV6_LENGTH:
            total = IPV6_LENGTH + self.u16(at + 4)
            if total <= size:
                self.transport, self.padding = at + IPV6_LENGTH, size - total
