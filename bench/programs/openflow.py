"""A bare OpenFlow 1.3 client over a unix socket, with negligible cost, so that the switch is measured."""

import socket
import struct
from types import TracebackType
from typing import Self

_HELLO, _ERROR, _ECHO_REQUEST, _ECHO_REPLY, _FLOW_MOD, _BARRIER_REQUEST, _BARRIER_REPLY = 0, 1, 2, 3, 14, 20, 21
_SET_CONFIG, _PACKET_IN, _PACKET_OUT = 9, 10, 13
_MULTIPART_REQUEST, _MULTIPART_REPLY, _FLOW_STATS, _MORE = 18, 19, 1, 1
_CONTROLLER = 0xFFFFFFFD
_HEADER = struct.Struct("!BBHI")
_FLOW_MOD_BODY = struct.Struct("!QQBBHHHIIIHH")
_ANY = 0xFFFFFFFF
_ADD, _DELETE = 0, 3
_ALL_TABLES = 0xFF


class RefusedError(Exception):
    """The switch answered with an OpenFlow error."""


class OpenFlowClient:
    """A connection after the hellos. ``target`` is ``unix:PATH``."""

    def __init__(self, target: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(target.removeprefix("unix:"))
        self._received = bytearray()
        self._xid = 0
        self.send(_HEADER.pack(4, _HELLO, 8, 0))
        while self.receive()[0] != _HELLO:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def send(self, messages: bytes) -> None:
        """Send complete messages."""
        self._socket.sendall(messages)

    def receive(self) -> tuple[int, int, bytes]:
        """Return the next message: type, transaction id, body.

        Raises:
            RefusedError: it is an error.
            EOFError: the switch closed the connection.
        """
        while True:
            if len(self._received) >= _HEADER.size:
                _, kind, length, xid = _HEADER.unpack_from(self._received)
                if len(self._received) >= length:
                    body = bytes(self._received[_HEADER.size : length])
                    del self._received[:length]
                    if kind == _ERROR:
                        error, code = struct.unpack_from("!HH", body)
                        raise RefusedError(f"OpenFlow error type {error} code {code} about message {xid}")
                    if kind != _ECHO_REQUEST:
                        return kind, xid, body
                    self.send(_HEADER.pack(4, _ECHO_REPLY, _HEADER.size + len(body), xid) + body)
                    continue
            some = self._socket.recv(1 << 18)
            if not some:
                raise EOFError("the switch closed the connection")
            self._received += some

    def barrier(self) -> None:
        """Return when the switch has processed all messages."""
        self._xid += 1
        self.send(_HEADER.pack(4, _BARRIER_REQUEST, 8, self._xid))
        while self.receive()[:2] != (_BARRIER_REPLY, self._xid):
            pass

    def want_packet_ins(self) -> None:
        """Request whole packets, which a bridge's management socket does not send by default."""
        self.send(_HEADER.pack(4, _SET_CONFIG, 12, 0) + struct.pack("!HH", 0, 0xFFFF))

    def receive_packet_in(self) -> bytes:
        """Return the data of the next packet-in."""
        while True:
            kind, _, body = self.receive()
            if kind == _PACKET_IN:
                (match_length,) = struct.unpack_from("!H", body, 18)
                return body[16 + (match_length + 7) // 8 * 8 + 2 :]

    def count_flows(self) -> int:
        """Request all flows and count them."""
        self._xid += 1
        body = struct.pack("!HH4x", _FLOW_STATS, 0) + struct.pack("!B3xII4xQQ", _ALL_TABLES, _ANY, _ANY, 0, 0)
        body += struct.pack("!HH4x", 1, 4)
        self.send(_HEADER.pack(4, _MULTIPART_REQUEST, _HEADER.size + len(body), self._xid) + body)
        count, more = 0, True
        while more:
            kind, xid, reply = self.receive()
            if (kind, xid) != (_MULTIPART_REPLY, self._xid):
                continue
            more = bool(struct.unpack_from("!H", reply, 2)[0] & _MORE)
            at = 8
            while at < len(reply):
                at += struct.unpack_from("!H", reply, at)[0]
                count += 1
        return count

    def delete_all(self) -> None:
        """Remove every rule of every table."""
        self.send(_flow_mod(_DELETE, _ALL_TABLES, 0, b"", b"", 0))
        self.barrier()


def add_flow(number: int, out_port: int, in_port: int | None = None) -> bytes:
    """Build a flow-mod: IPv4 destination 10.0.0.0 + ``number`` (and ``in_port``) to ``out_port``."""
    oxm = b"" if in_port is None else struct.pack("!HBBI", 0x8000, 0 << 1, 4, in_port)
    oxm += struct.pack("!HBBH", 0x8000, 5 << 1, 2, 0x0800)
    oxm += struct.pack("!HBBI", 0x8000, 12 << 1, 4, 0x0A000000 + number)
    output = struct.pack("!HHIH6x", 0, 16, out_port, 0)
    apply = struct.pack("!HH4x", 4, 8 + len(output)) + output
    return _flow_mod(_ADD, 0, 100, oxm, apply, number)


def output_to_controller(in_port: int) -> bytes:
    """Build a flow-mod: whole packets from ``in_port`` to the controller."""
    oxm = struct.pack("!HBBI", 0x8000, 0 << 1, 4, in_port)
    output = struct.pack("!HHIH6x", 0, 16, _CONTROLLER, 0xFFFF)
    return _flow_mod(_ADD, 0, 1, oxm, struct.pack("!HH4x", 4, 8 + len(output)) + output, 0)


def packet_out(in_port: int, out_port: int, data: bytes) -> bytes:
    """Build a packet-out of ``data`` to ``out_port``."""
    output = struct.pack("!HHIH6x", 0, 16, out_port, 0)
    body = struct.pack("!IIH6x", _ANY, in_port, len(output)) + output + data
    return _HEADER.pack(4, _PACKET_OUT, _HEADER.size + len(body), 0) + body


def _flow_mod(command: int, table: int, priority: int, oxm: bytes, instructions: bytes, xid: int) -> bytes:
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    body = _FLOW_MOD_BODY.pack(xid, 0, table, command, 0, 0, priority, _ANY, _ANY, _ANY, 0, 0) + match + instructions
    return _HEADER.pack(4, _FLOW_MOD, _HEADER.size + len(body), xid) + body
