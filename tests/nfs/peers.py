"""Programs for the hosts on both sides of an `nf`: each prints ``ready``, and at its end one JSON value."""

import hashlib
import json
import socket
import struct
import sys
import time

BLOCK = bytes(range(256)) * 256
PORT = 7000


def ready() -> None:
    """Report to the parent process that this program is ready."""
    print("ready", flush=True)


def tcp_sink() -> None:
    """Receive one connection to its end; report length and digest of its data."""
    with socket.create_server(("", PORT)) as server:
        ready()
        connection, _ = server.accept()
        digest, length = hashlib.sha256(), 0
        while piece := connection.recv(1 << 16):
            digest.update(piece)
            length += len(piece)
        connection.close()
    print(json.dumps([length, digest.hexdigest()]))


def tcp_source(target: str, megabytes: str) -> None:
    """Send this many bytes to a `tcp_sink`; report length and digest."""
    ready()
    digest, length = hashlib.sha256(), 0
    with socket.create_connection((target, PORT), timeout=30) as connection:
        for _ in range(int(megabytes) * (1 << 20) // len(BLOCK)):
            connection.sendall(BLOCK)
            digest.update(BLOCK)
            length += len(BLOCK)
    print(json.dumps([length, digest.hexdigest()]))


def udp_sink(flows: str, count: str) -> None:
    """Report the numbers received from each source port, in order, once all have arrived or no more arrive."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        server.bind(("", PORT))
        server.settimeout(3)
        ready()
        came: dict[int, list[int]] = {}
        try:
            for _ in range(int(flows) * int(count)):
                data, (_, port) = server.recvfrom(2048)
                came.setdefault(port, []).append(int(data))
            server.settimeout(0.2)
            while True:
                data, (_, port) = server.recvfrom(2048)
                came.setdefault(port, []).append(int(data))
        except TimeoutError:
            pass
    print(json.dumps(list(came.values())))


def udp_source(target: str, flows: str, count: str) -> None:
    """Send numbered datagrams from this many source ports in turn, at some thousands a second."""
    ready()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(flows))]
    for number in range(int(count)):
        for each in sockets:
            each.sendto(str(number).encode(), (target, PORT))
        time.sleep(0.001)
    print(json.dumps(len(sockets) * int(count)))


def frames(interface: str, *sizes: str) -> None:
    """Send frames of these sizes, of an unknown EtherType."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        ready()
        for size in sizes:
            raw.send((b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x07" + b"\x88\xb6" + bytes(int(size)))[: int(size)])
    print(json.dumps(len(sizes)))


_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_VNET_HDR = 263, 8, 15
_TAGS = ("81000005", "81006fff", "88a800078100c005")
"""VLAN tags before the EtherType: one, one with all priority bits, and two nested ones."""


def _tagged(tag: str) -> bytes:
    return b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x07" + bytes.fromhex(tag) + b"\x88\xb6" + tag.encode().ljust(80, b".")


def tagged_source(interface: str) -> None:
    """Send a frame with each of these tags; report the frames."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        ready()
        for tag in _TAGS:
            raw.send(_tagged(tag))
    print(json.dumps([_tagged(tag).hex() for tag in _TAGS]))


def tagged_sink(interface: str) -> None:
    """Report the received frames of this kind, with the tag that the kernel removed inserted again."""
    _frames_of_type(interface, b"\x88\xb6", len(_TAGS))


def frame_sink(interface: str, source: str, count: str) -> None:
    """Report this many received frames from a MAC address, with the tag that the kernel removed inserted again."""
    _frames_of_type(interface, bytes.fromhex(source), int(count))


def _frames_of_type(interface: str, mark: bytes, count: int) -> None:
    """Report frames with these bytes in their first 24."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as raw:
        raw.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        raw.bind((interface, _ETH_P_ALL))
        raw.settimeout(5)
        ready()
        came: list[str] = []
        while len(came) < count:
            frame, extra, _, _ = raw.recvmsg(1 << 17, 64)
            if mark not in frame[:24]:
                continue
            for level, kind, data in extra:
                if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                    status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", data)
                    if status & 0x10:
                        frame = frame[:12] + struct.pack(">HH", tpid, tci) + frame[12:]
            came.append(frame.hex())
    print(json.dumps(came))


def offloaded_source(interface: str) -> None:
    """Send the frames of standard input, one per line, in hexadecimal digits and after a ``virtio_net_hdr``."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        raw.bind((interface, 0))
        ready()
        frames = [bytes.fromhex(line) for line in sys.stdin]
        for frame in frames:
            raw.send(frame)
    print(json.dumps(len(frames)))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
