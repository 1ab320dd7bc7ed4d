"""A packet in the datapath: its bytes, and where its headers start.

As in Open vSwitch, they are found when a packet is received or recirculated, and only shifted as tags come and go.
"""

from dataclasses import dataclass, replace

ETH_LENGTH = 14
TYPE_IPV4, TYPE_IPV6, TYPE_VLAN = 0x0800, 0x86DD, 0x8100
VLAN_TYPES = (TYPE_VLAN, 0x88A8)
MPLS_TYPES = (0x8847, 0x8848)
_IPV4_MIN, _IPV6_LENGTH = 20, 40


@dataclass
class Packet:
    """Bytes with the offsets of the first MPLS label, the network and the transport header; None without one.

    The datapath looks behind ``vlan_limit`` VLAN tags. ``conditions`` have to hold for the packet to be here with these
    bytes. ``padding`` follows the IP packet; the next output leaves ``cut`` bytes off; ``mark`` is ``skb_mark``, and
    ``tunnel`` the tunnel id beside the packet.
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
    tunnel: int = 0

    @classmethod
    def received(cls, data: bytes, vlan_limit: int = 1, conditions: tuple[str, ...] = (), tunnel: int = 0) -> "Packet":
        packet = cls(bytearray(data), vlan_limit, conditions, tunnel=tunnel)
        packet.parse()
        return packet

    def clone(self) -> "Packet":
        return replace(self, data=bytearray(self.data))

    def sent(self) -> bytes:
        """Return the bytes that an output would send now."""
        return bytes(self.data[: len(self.data) - self.cut])

    def u16(self, offset: int) -> int:
        return int.from_bytes(self.data[offset : offset + 2], "big")

    @property
    def inner_labels(self) -> bool:
        """Whether there are MPLS labels below the first."""
        return self.mpls is not None and len(self.data) >= self.mpls + 4 and not self.data[self.mpls + 2] & 1

    def resize(self, offset: int, insert: bytes = b"", remove: int = 0) -> None:
        """Insert or remove bytes in front of the network header."""
        self.data[offset : offset + remove] = insert
        change = len(insert) - remove
        self.mpls = self.mpls + change if self.mpls is not None and offset < self.mpls else self.mpls
        self.network = None if self.network is None else self.network + change
        self.transport = None if self.transport is None else self.transport + change

    def parse(self) -> None:
        """Find the headers, as miniflow_extract() of Open vSwitch 3.1 does."""
        self.mpls = self.network = self.transport = None
        self.padding, at = 0, 12
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
        size, header, total = len(self.data) - at, 0, 0
        if ethertype == TYPE_IPV4 and size >= _IPV4_MIN:
            header, total = (self.data[at] & 0xF) * 4, self.u16(at + 2)
        elif ethertype == TYPE_IPV6 and size >= _IPV6_LENGTH:
            header, total = _IPV6_LENGTH, _IPV6_LENGTH + self.u16(at + 4)
        if _IPV4_MIN <= header <= total <= size:
            self.transport, self.padding = at + header, size - total
