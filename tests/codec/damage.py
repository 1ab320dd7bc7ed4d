"""Damages valid messages."""

import random
import struct


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with some bytes changed, removed or added, and a matching length."""
    body = bytearray(frame[8:])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if not body:
            break
        at = chance.randrange(len(body))
        match chance.randrange(8):
            case 0:
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at] = chance.choice([0, 1, 4, 8, 16, 0xFF])
            case 2:
                body[at] = (body[at] + chance.choice([-8, -4, -1, 1, 4, 8])) % 256
            case 3:
                del body[at & ~7 : (at & ~7) + 8]
            case 4:
                body[at & ~7 : at & ~7] = body[(at & ~7) : (at & ~7) + chance.choice([8, 16, 24])]
            case 5:
                del body[at:]
            case 6:
                body += bytes(chance.choice([1, 8, 16]))
            case _:
                other = chance.randrange(len(body))
                body[at], body[other] = body[other], body[at]
    return frame[:2] + struct.pack("!H", 8 + len(body)) + frame[4:8] + bytes(body)
