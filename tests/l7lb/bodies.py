"""The bodies of transfers: both ends compute the same bytes from a seed and a size."""

import random

LARGEST = 1 << 20
_DATA = random.Random(20).randbytes(2 * LARGEST)


def body(seed: int, size: int) -> bytes:
    """Return `size` bytes, at most `LARGEST`; a part of it appears nowhere else in it, nor in most other bodies."""
    start = seed * 7919 % LARGEST
    return _DATA[start : start + size]


def chunked(data: bytes, seed: int, trailers: dict[str, str]) -> bytes:
    """Encode a body in chunks of random sizes, some with an extension, and trailers."""
    choose = random.Random(seed)
    pieces, at = [], 0
    while at < len(data):
        size = min(choose.choice((1, 2, 100, 1448, 4096, 20_000)) + choose.randrange(64), len(data) - at)
        extension = b";note=x" if choose.random() < 0.1 else b""
        pieces += [f"{size:x}".encode(), extension, b"\r\n", data[at : at + size], b"\r\n"]
        at += size
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
    return b"".join([*pieces, b"0\r\n", lines.encode(), b"\r\n"])
