"""One tcpdump at one interface."""

import queue
import re
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from server.errors import ToolError
from unoctl.capture.place import Place
from unoctl.capture.records import read_header, read_records

_STOP_S = 5.0
_ROOM_S = 0.2
_BUFFER_KIB = "32768"
"""Of the kernel. In immediate mode it has a place of the greatest length for each packet: some 500 of 64 KiB."""
_NO_DEVICE = "No such device"
_DROPPED = re.compile(r"^(\d+) packets? dropped by kernel$", re.MULTILINE)


class Tap:
    """tcpdump at a place; it puts packets into a queue until `stop`.

    Args:
        place: the interface.
        enter: command prefix that runs a program beside the switch.
        filters: words of pcap-filter(7).
        snaplen: bytes of each packet, at most.
        packets: gets the stream's header and each record, and None at the end. A full queue makes tcpdump wait, and
            then the kernel drops packets and counts them.

    Raises:
        ToolError: tcpdump is missing.
    """

    def __init__(
        self, place: Place, enter: Sequence[str], filters: Sequence[str], snaplen: int, packets: "queue.Queue[Packet]"
    ) -> None:
        self.place = place
        self._packets = packets
        options = [
            "-i",
            place.interface,
            "-w",
            "-",
            "-U",
            "--immediate-mode",
            "-Z",
            "root",
            "-B",
            _BUFFER_KIB,
            "-s",
            str(snaplen),
        ]
        command = [*enter, "tcpdump", *options, "--", *filters]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"cannot run {command[0]}: {error.strerror}; install the package tcpdump") from error
        self._said = b""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, name=f"capture {place}", daemon=True),
            threading.Thread(target=self._listen, name=f"errors of {place}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """End tcpdump; return how many packets the kernel has dropped because nobody read them in time."""
        self._stopping.set()
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        dropped = _DROPPED.search(self._last_words())
        return int(dropped[1]) if dropped else 0

    def failure(self) -> ToolError:
        """Return why tcpdump has ended by itself."""
        status = self._process.wait()
        lines = [line for line in self._last_words().splitlines() if not line.startswith("tcpdump: listening")]
        said = "; ".join(lines[-2:]) or f"exit status {status}"
        if _NO_DEVICE in said:
            said += (
                "; if the port is of a type that the kernel does not have, such as pcie or dpdk, "
                f"ovs-tcpdump -i {self.place.interface} on the switch's machine shows its packets"
            )
        return ToolError(f"{self.place}: {said}")

    def _last_words(self) -> str:
        self._threads[1].join(_STOP_S)
        return self._said.decode(errors="replace").strip()

    def _read(self) -> None:
        stream = _stream(self._process.stdout)
        header = read_header(stream)
        if header is not None:
            self._put(header, is_header=True)
            for record in read_records(stream):
                self._put(record)
        self._put(None)

    def _put(self, data: bytes | None, *, is_header: bool = False) -> None:
        # Packets that come after `stop` are dropped, but read: tcpdump waits for its reader before it ends.
        while not self._stopping.is_set():
            with suppress(queue.Full):
                self._packets.put((self, data, is_header), timeout=_ROOM_S)
                break

    def _listen(self) -> None:
        self._said = _stream(self._process.stderr).read()


Packet = tuple[Tap, bytes | None, bool]
"""A tap's record; or, if the last member is True, its header; None: the tap has ended."""


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
