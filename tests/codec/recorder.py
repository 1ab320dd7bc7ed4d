"""A passive switch that records what ovs-ofctl sends."""

import socket
import struct
import subprocess
import threading
from pathlib import Path

from tests.codec.wire import BARRIER_REPLY, BARRIER_REQUEST, ECHO_REPLY, ECHO_REQUEST, HELLO, frame, xid_of

EXPERIMENTER, FEATURES_REQUEST, FEATURES_REPLY, MULTIPART_REQUEST, MULTIPART_REPLY = 4, 5, 6, 18, 19
GET_CONFIG_REQUEST, GET_CONFIG_REPLY, QUEUE_GET_CONFIG_REQUEST, QUEUE_GET_CONFIG_REPLY = 7, 8, 22, 23
PORT_DESC = 13


def answer(message: bytes) -> bytes | None:
    """Answer what ovs-ofctl needs to continue: barriers, echoes, features, one port and bundle controls."""
    kind, xid = message[1], xid_of(message)
    if kind == BARRIER_REQUEST:
        return frame(BARRIER_REPLY, xid)
    if kind == ECHO_REQUEST:
        return frame(ECHO_REPLY, xid, message[8:])
    if kind == FEATURES_REQUEST:
        return frame(FEATURES_REPLY, xid, struct.pack("!QIBBHII", 1, 0, 254, 0, 0, 0x4F, 0))
    if kind == GET_CONFIG_REQUEST:
        return frame(GET_CONFIG_REPLY, xid, bytes(4))
    if kind == QUEUE_GET_CONFIG_REQUEST:
        return frame(QUEUE_GET_CONFIG_REPLY, xid, message[8:])
    if kind == MULTIPART_REQUEST:
        body = b""
        if message[9] == PORT_DESC:
            body = struct.pack("!I4x6s2x16s8I", 1, b"\2\0\0\0\0\1", b"p1", 0, 4, 0, 0, 0, 0, 0, 0)
        return frame(MULTIPART_REPLY, xid, message[8:10] + bytes(6) + body)
    if kind == EXPERIMENTER and message[8:16] == struct.pack("!II", 0x4F4E4600, 2300):
        bundle, control, flags = struct.unpack_from("!IHH", message, 16)
        return frame(kind, xid, message[8:16] + struct.pack("!IHH", bundle, control + 1, flags))
    return None


class Recorder:
    """Accepts one connection and records its messages."""

    def __init__(self, path: Path) -> None:
        self.messages: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._listener.settimeout(10)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def finish(self) -> list[bytes]:
        self._thread.join(10)
        self._listener.close()
        return self.messages

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        peer.settimeout(10)
        peer.sendall(frame(HELLO, 0))
        buffer = b""
        with peer:
            while data := peer.recv(1 << 16):
                buffer += data
                while len(buffer) >= 8 and len(buffer) >= (length := struct.unpack_from("!H", buffer, 2)[0]):
                    message, buffer = buffer[:length], buffer[length:]
                    self.messages.append(message)
                    reply = answer(message)
                    if reply:
                        peer.sendall(reply)


def record(folder: Path, *arguments: str, stdin: str = "") -> list[bytes]:
    """Return the messages of ``ovs-ofctl -O OpenFlow13``; the word SWITCH stands for the switch."""
    path = folder / f"{threading.get_native_id()}.sock"
    path.unlink(missing_ok=True)
    recorder = Recorder(path)
    words = [f"unix:{path}" if word == "SWITCH" else word for word in arguments]
    # ovs-ofctl waits for more replies than this switch sends, so end it when it stops sending.
    command = ["ovs-ofctl", "-O", "OpenFlow13", "--timeout=2", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    messages = recorder.finish()
    assert len(messages) > 1, done.stderr
    return messages
