"""Checksums of packets, updated the way Open vSwitch's userspace datapath updates them.

An update is incremental (RFC 1624, equation 3), so a checksum that was wrong stays wrong by the same amount: the bytes
predicted for a broken packet are the bytes that leave.
"""


def update16(checksum: int, old: int, new: int) -> int:
    """The checksum after one 16-bit word of what it covers changed from ``old`` to ``new``."""
    return finish((~checksum & 0xFFFF) + (~old & 0xFFFF) + new)


def update_bytes(checksum: int, old: bytes, new: bytes) -> int:
    """The checksum after bytes at an even offset changed; both have the same, even length."""
    for index in range(0, len(old), 2):
        checksum = update16(checksum, _word(old, index), _word(new, index))
    return checksum


def finish(partial: int) -> int:
    """Fold a sum of 16-bit words and complement it."""
    while partial >> 16:
        partial = (partial & 0xFFFF) + (partial >> 16)
    return ~partial & 0xFFFF


def internet(data: bytes, start: int = 0) -> int:
    """The Internet checksum (RFC 1071) of ``data``, an odd last byte padded; ``start`` is a partial sum to add to."""
    padded = data + b"\0" if len(data) % 2 else data
    return finish(start + sum(_word(padded, index) for index in range(0, len(padded), 2)))


def crc32c(data: bytes) -> bytes:
    """SCTP's checksum (RFC 9260, appendix A) as the four bytes that go into the header."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def _word(data: bytes, index: int) -> int:
    return data[index] << 8 | data[index + 1]


def _crc_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC_TABLE = tuple(_crc_entry(value) for value in range(256))
