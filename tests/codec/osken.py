"""os-ken's OpenFlow 1.3 codec, which writes requests and reads replies."""

from typing import Any

from os_ken.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

# Both define many of their names on import.
OF: Any = ofproto_v1_3
P: Any = ofproto_v1_3_parser
DATAPATH = ProtocolDesc(version=OF.OFP_VERSION)
XID = 0x12345678


def written(message: Any) -> bytes:
    """Encode a message with os-ken."""
    message.xid = XID
    message.serialize()
    return bytes(message.buf)


def read(frame: bytes) -> Any:
    """Decode a message with os-ken."""
    header = ofproto_parser.header(frame)
    return ofproto_parser.msg(DATAPATH, *header, frame)


def oxm_of(match: Any) -> bytes:
    """Return the OXM fields of a match, without its header and padding."""
    buffer = bytearray()
    match.serialize(buffer, 0)
    return bytes(buffer[4 : int.from_bytes(buffer[2:4], "big")])


def set_value_of(action: Any) -> bytes:
    """Return the value that a set-field action writes."""
    buffer = bytearray()
    action.serialize(buffer, 0)
    return bytes(buffer[8 : 8 + buffer[7]])


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Check that os-ken has everything that the Rust codec found in a message, under the same names."""
    if isinstance(ours, dict):
        other: Any = theirs[0] if isinstance(theirs, list) and len(theirs) == 1 else theirs
        for key, value in ours.items():
            path = f"{where}.{key}"
            if key == "oxm":
                assert value == oxm_of(other).hex(), path
            elif key == "oxm_value":
                assert value == set_value_of(other).hex(), path
            elif key == "exp_type" and not hasattr(other, key):
                assert value == other.code, path
            else:
                assert_same(value, getattr(other, key), path)
    elif isinstance(ours, list):
        theirs = [] if theirs is None else theirs
        assert len(ours) == len(theirs), where
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    elif isinstance(theirs, bytes | bytearray):
        assert ours in {bytes(theirs).hex(), bytes(theirs).rstrip(b"\0").decode("latin1")}, where
    elif theirs is None:
        assert ours in {"", 0}, where
    else:
        assert ours == theirs, where
