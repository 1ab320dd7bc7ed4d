"""A frame out of a port, by OpenFlow, at a real Open vSwitch."""

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest

from lab.directory import ENVIRONMENT
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Wires
from nfagent.migrate.packet_out import Outlet
from server.errors import ToolError

FRAME = bytes.fromhex("020000000002020000000004") + b"\x88\xb5" + bytes(46)


def send(target: str, port: str, vlan: int | None = None, times: int = 1) -> None:
    """Frames, by one connection."""
    with contextlib.closing(Outlet(target, port, vlan)) as outlet:
        for _ in range(times):
            outlet.put(FRAME)
        for _ in range(times):
            outlet.settle()


def test_frames_leave_by_the_port_of_that_name_with_and_without_a_tag(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(directory))
    with Lab(LabSpec.demo(substrate="dummy")).start() as lab, Wires(lab.state) as wires:
        edge = str(lab.state.switches[0].edge)
        send(edge, "vm2", times=3)
        assert wires.settle() == {("hypervisor", "vm2"): 3 * [FRAME]}
        send(edge, "vm1", vlan=0x123)
        assert wires.settle() == {("hypervisor", "vm1"): [FRAME[:12] + b"\x81\x00\x01\x23" + FRAME[12:]]}
        with pytest.raises(ToolError, match="no packet could be sent out of vm9: it has no port of that name"):
            send(edge, "vm9")
    with pytest.raises(ToolError, match="No such file"):
        send(edge, "vm2")


def test_a_refusal_is_told(directory: Path) -> None:
    """By a peer that says hello, asks for an echo, and refuses."""
    path = directory / "bridge"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                hello, echo = struct.pack("!BBHI", 4, 0, 8, 1), struct.pack("!BBHI", 4, 2, 10, 7) + b"hi"
                error = struct.pack("!BBHIHH", 4, 1, 12, 9, 1, 5)
                peer.sendall(hello + echo + error)
                while peer.recv(100):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ToolError, match="OpenFlow error type 1, code 5"):
            send(f"unix:{path}", "vm1")
        thread.join()
