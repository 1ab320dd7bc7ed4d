"""Packets of a pcap stream, as tcpdump writes it: a header, then records."""

import struct
import sys
from collections.abc import Iterator
from typing import IO

_HEADER_BYTES = 24
_RECORD_BYTES = 16
_LENGTH = struct.Struct(f"{'<' if sys.byteorder == 'little' else '>'}I")
"""Of the captured bytes in a record's header: tcpdump writes its machine's byte order, whatever the packets are."""
_LENGTH_AT = 8


def read_header(stream: IO[bytes]) -> bytes | None:
    """Return the stream's header; None: the stream ended before."""
    header = stream.read(_HEADER_BYTES)
    return header if len(header) == _HEADER_BYTES else None


def read_records(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield each record with its header, until the stream ends; drop a record that is cut off."""
    while True:
        head = stream.read(_RECORD_BYTES)
        if len(head) < _RECORD_BYTES:
            return
        (length,) = _LENGTH.unpack_from(head, _LENGTH_AT)
        packet = stream.read(length)
        if len(packet) < length:
            return
        yield head + packet
