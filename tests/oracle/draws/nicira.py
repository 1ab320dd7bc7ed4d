"""Nicira's extensions: actions in rules of every version, and messages."""

import struct

from hypothesis import strategies as st

from tests.oracle import frames, pools
from tests.oracle.dialects import nicira
from tests.oracle.draws.model import Draw, Model

IDS = (0, 5)
"""Of controllers."""
_IN_PORT = 0xFFF8
RESUBMIT_TABLE = 14
_NOTE, _OUTPUT_REG, _EXIT, _CONTROLLER, _CONTROLLER2 = 8, 15, 17, 20, 37
_REG0, _ETH_DST, _ETH_SRC = 0x00010004, 0x00000206, 0x00000406
_MAX_LEN, _ID, _USERDATA, _PAUSE = 0, 1, 3, 4
_WORD = (0 << 6) | 31
_MAPPINGS = ((1, 2, 4, 0), (1, 3, 8, 1), (0xFFFF, 0x80, 4, 2))


def action(draw: Draw, later: list[int]) -> bytes:
    """Draw an action that needs nothing of the packet; ``later``: tables that it may look the packet up in."""
    kinds = ["load", "move", "note", "controller", "controller2", "output_reg", *["resubmit"] * 3 * bool(later)]
    match draw(st.sampled_from(kinds)):
        case "load":
            return nicira.action(nicira.REG_LOAD, struct.pack("!HIQ", _WORD, _REG0, draw(st.sampled_from((0, 1, 2)))))
        case "move":
            return nicira.action(nicira.REG_MOVE, struct.pack("!HHHII", 48, 0, 0, _ETH_SRC, _ETH_DST))
        case "note":
            return nicira.action(_NOTE, b"note")
        case "controller":
            # Known difference: over OpenFlow 1.0, NO_MATCH comes twice.
            where = draw(st.sampled_from(IDS)), draw(st.sampled_from((1, 1, 2, 3, 4)))
            return nicira.action(_CONTROLLER, struct.pack("!HHBB", draw(st.sampled_from((64, 0xFFFF))), *where, 0))
        case "controller2":
            return controller2(draw(st.sampled_from(IDS)), draw(st.booleans()), draw(st.booleans()))
        case "output_reg":
            return nicira.action(_OUTPUT_REG, struct.pack("!HIH6x", _WORD, _REG0, 0xFFFF))
        case _:
            return nicira.action(RESUBMIT_TABLE, struct.pack("!HB3x", _IN_PORT, draw(st.sampled_from(later))))


def controller2(number: int, pauses: bool, says: bool) -> bytes:
    """Return an action that sends to controllers with an id, and may pause the packet."""
    body = bytes(6) + struct.pack("!HHH2x", _ID, 6, number)
    if says:
        body += struct.pack("!HH8s4x", _USERDATA, 12, b"userdata")
    return nicira.action(_CONTROLLER2, body + struct.pack("!HH4x", _PAUSE, 4) * pauses)


def message(draw: Draw, model: Model, *, roles: bool) -> bytes:
    """Draw a choice of a controller's, in the version that it speaks, or another message."""
    version, xid = model.sender.version, model.next_xid()
    send = lambda subtype, body=b"": nicira.message(version, xid, subtype, body)  # noqa: E731
    kinds = [
        *["format"] * 3,
        *["id"] * 2,
        "masks",
        "masks2",
        "map",
        "maps",
        "zone",
        "connections",
        "role" if roles else "id",
    ]
    match draw(st.sampled_from([*kinds, *["flows", "tables", "tables"] * (version == 1)])):
        case "format":
            return send(nicira.SET_PACKET_IN_FORMAT, struct.pack("!I", draw(st.sampled_from((0, 1, 2, 2)))))
        case "id":
            return send(nicira.SET_CONTROLLER_ID, struct.pack("!6xH", draw(st.sampled_from(IDS))))
        case "masks":
            masks = draw(st.lists(st.sampled_from((0, 1, 3, 7)), min_size=6, max_size=6))
            return send(nicira.SET_ASYNC_CONFIG, struct.pack("!6I", *masks))
        case "masks2":
            # Known difference: OpenFlow 1.0 has no form for others' requests.
            kind, mask = (
                draw(st.integers(0, 9 if version == 1 else 11)),
                draw(st.sampled_from((0, 1, 3, 7, 0x3B, 0x18))),
            )
            return send(nicira.SET_ASYNC_CONFIG2, struct.pack("!HHI", kind, 8, mask))
        case "map":
            command = draw(st.sampled_from((0, 0, 0, 1, 2)))
            mappings = draw(st.lists(st.sampled_from(_MAPPINGS), min_size=1, max_size=2)) if command < 2 else []
            return nicira.tlv_map(version, xid, command, *mappings)
        case "maps":
            return send(nicira.TLV_TABLE_REQUEST)
        case "zone":
            return send(nicira.CT_FLUSH_ZONE, struct.pack("!6xH", draw(st.sampled_from((0, 1)))))
        case "connections":
            return _flush_connections(draw, version, xid)
        case "role":
            return send(nicira.ROLE_REQUEST, struct.pack("!I", draw(st.sampled_from((0, 1, 2, 2, 3)))))
        case "flows":
            return send(nicira.SET_FLOW_FORMAT, struct.pack("!I", draw(st.sampled_from((0, 2)))))
        case _:
            model.sender.names_tables = draw(st.booleans())
            return send(nicira.FLOW_MOD_TABLE_ID, struct.pack("!B7x", model.sender.names_tables))


def _flush_connections(draw: Draw, version: int, xid: int) -> bytes:
    """Draw a removal of connections, of some or of all packets."""
    protocol = draw(st.sampled_from((0, frames.TCP, frames.UDP, frames.ICMP)))
    original, reply = (_direction(draw, protocol) if draw(st.integers(0, 2)) < wanted else b"" for wanted in (2, 1))
    message = nicira.ct_flush(version, xid, protocol, original, reply, draw(st.sampled_from((None, None, 0, 1))))
    if draw(st.integers(0, 9)):
        return message
    # Its padding is not zero, or it ends with half a property.
    if draw(st.booleans()):
        return message[:17] + b"\1" + message[18:]
    return message[:2] + struct.pack("!H", len(message) - 4) + message[4:-4]


def _direction(draw: Draw, protocol: int) -> bytes:
    """Draw what is known of one direction of a connection."""
    found = b""
    for kind, name in ((nicira.CT_SOURCE, "ipv4_src"), (nicira.CT_TARGET, "ipv4_dst")):
        if draw(st.booleans()):
            address = draw(st.sampled_from(pools.VALUES[name]))
            found += nicira.ct_property(kind, bytes(10) + b"\xff\xff" + address.to_bytes(4))
    if protocol == frames.ICMP:
        return (
            found
            + nicira.ct_property(nicira.CT_ICMP_TYPE, b"\x08\0\0\0")
            + nicira.ct_property(nicira.CT_ICMP_ID, bytes(4))
        )
    ports = (nicira.CT_SOURCE_PORT, (1000, 1001)), (nicira.CT_TARGET_PORT, (53, 80, 443))
    for kind, numbers in ports if protocol else ():
        if draw(st.booleans()):
            found += nicira.ct_property(kind, struct.pack("!H2x", draw(st.sampled_from(numbers))))
    return found


def later_tables(table: int) -> list[int]:
    """Return the tables to which a rule may resubmit, without a loop."""
    return [each for each in pools.TABLES if each > table]
