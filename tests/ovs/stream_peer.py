"""The other end of a `pcie` port with `options:address`, without Open vSwitch: the protocol of lib/pcie-stream.h."""

import socket
import struct
import time

MAGIC = 0x4F565354
VERSION = 1
# magic, version, whether this end listens, reserved
HELLO = struct.Struct("!IHHQ")
# length of the frame, tunnel id
HEADER = struct.Struct("!II")
MAX_FRAME = 65536


def hello(*, listening: bool = False, magic: int = MAGIC, version: int = VERSION) -> bytes:
    return HELLO.pack(magic, version, listening, 0)


def record(frame: bytes, tun_id: int = 0) -> bytes:
    return HEADER.pack(len(frame), tun_id) + frame


class StreamPeer:
    """A connection to a port with role=listen, or from one with role=connect."""

    def __init__(self, connection: socket.socket, greeting: bytes, patience: float = 10) -> None:
        self.socket, self.listening = connection, greeting == hello(listening=True)
        self.socket.settimeout(patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(greeting)
        answer = self.exactly(HELLO.size)
        assert answer == hello(listening=not self.listening), answer

    @classmethod
    def connect(cls, port: int, patience: float = 10) -> "StreamPeer":
        """Connects to a port of this machine; the switch refuses while it has another peer."""
        end = time.monotonic() + patience
        while True:
            connection = socket.socket()
            try:
                connection.settimeout(patience)
                connection.connect(("127.0.0.1", port))
                return cls(connection, hello(), patience)
            except OSError:
                connection.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def exactly(self, size: int) -> bytes:
        """Receive `size` bytes."""
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise ConnectionError(f"the switch closed the link {len(found)} bytes into {size}")
            found += more
        return found

    def put(self, frame: bytes, tun_id: int = 0) -> None:
        self.socket.sendall(record(frame, tun_id))

    def get(self) -> tuple[bytes, int]:
        length, tun_id = HEADER.unpack(self.exactly(HEADER.size))
        return self.exactly(length), tun_id

    def closed(self) -> bool:
        """Waits until the switch gives the link up; False after the patience of the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        self.close()
