"""Packet-outs over OpenFlow 1.5 of packets without an Ethernet header."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects import nicira
from tests.oracle.frames import payload
from tests.oracle.steps import Check, Reconnect, Send
from tests.oracle.test_openflow15 import bundle, in_15, packet_out

_PACKET_TYPE = 44
_IPV4, _ARP, _UNKNOWN = 0x00010800, 0x00010806, 0x00050001
_ENCAP, _DECAP = 46, 47
_ETHERNET = nicira.action(_ENCAP, struct.pack("!HI", 0, 0))
_PACKET = payload(0x0800, {"ipv4_src": 0x0A000001, "ipv4_dst": 0x0A000002, "ip_proto": 17})


def fields(kind: int, port: int = 1) -> bytes:
    """Return a port and a type of packet."""
    return of.oxm(("in_port", port, None)) + struct.pack("!HBBI", 0x8000, _PACKET_TYPE << 1, 4, kind)


PACKETS = {
    "to a port": packet_out(fields(_IPV4), of.output(2), _PACKET),
    "to another switch": packet_out(fields(_IPV4), of.output(5), _PACKET),
    "to many": packet_out(fields(_IPV4), of.output(of.FLOOD), _PACKET),
    "to a table": packet_out(fields(_IPV4), of.output(of.TABLE), _PACKET),
    "to controllers": packet_out(fields(_IPV4), of.output(of.CONTROLLER, 0xFFFF), _PACKET),
    "with a header": packet_out(fields(_IPV4), _ETHERNET + of.output(5), _PACKET),
    "with a changed header": packet_out(
        fields(_IPV4), _ETHERNET + of.set_field(("eth_dst", 0x020000000009, None)) + of.output(2), _PACKET
    ),
    "from no port": packet_out(fields(_IPV4, of.CONTROLLER), of.output(2), _PACKET),
    "a field of Ethernet": packet_out(fields(_IPV4), of.set_field(("eth_dst", 9, None)) + of.output(2), _PACKET),
    "a field of IPv4": packet_out(fields(_IPV4), of.set_field(("ipv4_dst", 9, None)) + of.output(2), _PACKET),
    "ARP": packet_out(fields(_ARP), of.output(2), payload(0x0806, {})),
    "an unknown type": packet_out(fields(_UNKNOWN), of.output(2), _PACKET),
    "Ethernet": packet_out(fields(0), of.output(2), bytes(12) + b"\x08\0" + _PACKET),
    "in a bundle": bundle(packet_out(fields(_IPV4), of.output(5), _PACKET)),
    "an unknown port": packet_out(fields(_IPV4), of.output(0xFF00), _PACKET),
}


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.mark.parametrize("data", PACKETS.values(), ids=PACKETS)
def test_a_packet_goes_where_one_bridge_sends_it(comparison: Comparison, data: bytes) -> None:
    comparison.reset()
    comparison.play(Reconnect(0, m.VERSION))
    rule = of.FlowMod(fields=(("eth_type", 0x0800, None),), instructions=of.apply_actions(of.output(6)))
    messages: list[str] = []
    while data:
        length = int.from_bytes(data[2:4])
        messages.append(data[:length].hex())
        data = data[length:]
    comparison.play(Send((in_15(rule.encode(9)).hex(), *messages)))
    comparison.play(Check())
