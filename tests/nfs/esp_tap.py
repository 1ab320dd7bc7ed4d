"""``python -m tests.nfs.esp_tap INTERFACE``: looks at each ESP packet that arrives, for a nonce that was used before.

It prints ``ready``, and a JSON object when its standard input ends: per SPI the number of packets, those whose nonce
another one had, and those whose sequence number is not the highest so far.
"""

import json
import socket
import struct
import sys
import threading

_ALL = 0x0003
_ESP = 50
_HEAD = struct.Struct(">IIQ")  # SPI, sequence number, and the explicit part of the nonce (RFC 4106)
_BUFFER = 8 << 20


class Tap:
    """What was seen of each SPI."""

    def __init__(self) -> None:
        self.packets: dict[int, int] = {}
        self.late: dict[int, int] = {}
        self.repeated: list[tuple[int, int, int]] = []
        self._nonces: set[tuple[int, int]] = set()
        self._highest: dict[int, int] = {}

    def see(self, frame: bytes) -> None:
        """Look at a frame."""
        if frame[12:14] != b"\x08\x00" or frame[23] != _ESP:
            return
        spi, sequence, iv = _HEAD.unpack_from(frame, 14 + 4 * (frame[14] & 15))
        self.packets[spi] = self.packets.get(spi, 0) + 1
        if (spi, iv) in self._nonces:
            self.repeated.append((spi, sequence, iv))
        self._nonces.add((spi, iv))
        if sequence <= self._highest.get(spi, 0):
            self.late[spi] = self.late.get(spi, 0) + 1
        self._highest[spi] = max(sequence, self._highest.get(spi, 0))


def main() -> None:
    tap, ended = Tap(), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        wire.bind((sys.argv[1], _ALL))
        wire.settimeout(0.1)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        print("ready", flush=True)
        while True:
            was_ended = ended.is_set()
            try:
                tap.see(wire.recv(2048))
            except TimeoutError:
                if was_ended:
                    break
    print(json.dumps({"packets": tap.packets, "repeated": tap.repeated, "late": tap.late}))


if __name__ == "__main__":
    main()
