"""``python -m lab.tiara.server_nat``: rewrites a real server's answers to come from the VIP (Tiara, section 3.2.2).

The paper's servers do it with XDP or OVS conntrack, which not every machine has for ordinary users. Frames of the
server's route arrive by ``--from``; they leave by ``--to``, a VXLAN device.

Prints ``{"event": "ready"}`` when it listens.
"""

import argparse
import socket
import sys

from lab.commands import say

_ETHERNET, _IP, _TCP = 14, 20, 6
_IPV4 = b"\x08\x00"
_FRAME_MAX = 65536
_OUTGOING = 4  # PACKET_OUTGOING: a frame that this host itself sends
_BUFFER = 1 << 22


def rewritten(frame: bytes, server: tuple[bytes, int], vip: tuple[bytes, int], macs: bytes) -> bytes | None:
    """Return the frame with the VIP as its source, or None: it is not an answer of the server.

    Args:
        frame: from the server.
        server: its address and port.
        vip: the VIP's.
        macs: the new Ethernet addresses, to and from.
    """
    packet = bytearray(frame[_ETHERNET:])
    if frame[12:14] != _IPV4 or len(packet) < _IP + 18 or packet[0] != 0x45 or packet[9] != _TCP:
        return None
    old_port, new_port = server[1].to_bytes(2), vip[1].to_bytes(2)
    if packet[12:16] != server[0] or packet[_IP : _IP + 2] != old_port:
        return None
    packet[12:16], packet[_IP : _IP + 2] = vip[0], new_port
    _update(packet, 10, server[0], vip[0])
    _update(packet, _IP + 16, server[0] + old_port, vip[0] + new_port)
    return macs + _IPV4 + bytes(packet)


def _update(packet: bytearray, at: int, old: bytes, new: bytes) -> None:
    """Update a checksum (RFC 1624, equation 3)."""
    total = ~int.from_bytes(packet[at : at + 2]) & 0xFFFF
    for before, after in zip(_words(old), _words(new), strict=True):
        total += (~before & 0xFFFF) + after
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    packet[at : at + 2] = (~total & 0xFFFF).to_bytes(2)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def _opened(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    opened.bind((interface, 0x0800))
    return opened


def _end(text: str) -> tuple[bytes, int]:
    address, _, port = text.partition(":")
    return socket.inet_aton(address), int(port)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lab.tiara.server_nat", description="Source NAT of a real server.")
    for name in ("from", "to", "server", "vip", "mac", "gateway"):
        parser.add_argument(f"--{name}", required=True)
    options = vars(parser.parse_args())
    source, target = _opened(options["from"]), _opened(options["to"])
    server, vip = _end(options["server"]), _end(options["vip"])
    macs = _mac(options["gateway"]) + _mac(options["mac"])
    say("ready")
    while True:
        frame, origin = source.recvfrom(_FRAME_MAX)
        answer = rewritten(frame, server, vip, macs) if origin[2] != _OUTGOING else None
        if answer is not None:
            try:
                target.send(answer)
            except OSError as error:  # TCP sends again
                print(f"{options['to']}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
