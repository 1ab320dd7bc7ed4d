"""``python -m lab.stream send|receive``: traffic with numbered frames, over raw sockets, to be run inside hosts.

Both print JSON lines: ``{"event": "ready"}`` when they are at work, at the end ``{"event": "report", ...}``. Both read
commands from standard input: ``stop``; the sender also ``use INTERFACE`` (answered by ``{"event": "using", ...}``) and
``rate PPS``. End of file on standard input means nothing. SIGTERM and SIGINT are as good as ``stop``.

It imports little, because it starts once per direction and measurement.
"""

import argparse
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

from lab.frames import DATA, END, MAGIC, MAGIC_AT, STREAM_AT, UDP_PORT, Endpoint, FrameMaker, read_mark
from lab.tally import Tally

_ETH_P_IP = 0x0800
_SO_RCVBUFFORCE = 33
_SO_ATTACH_FILTER = 26
_SO_TIMESTAMPNS = 35
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_BUFFER_BYTES = 8 * 1024 * 1024
_SNAP_BYTES = 128

_WAKE_MIN_S = 0.0005  # above 2,000 packets/s several go out at a wake-up
_BURST_MAX = 64
_CATCH_UP_NS = 100_000_000  # a sender that was kept waiting longer goes on from there instead of bursting
_END_AT_S = (0.0, 0.01, 0.03)


class _Commands:
    """Lines on standard input, and signals, without blocking."""

    def __init__(self) -> None:
        self._text = b""
        self._open = True
        self.stopped = False
        wake, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wakeup)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wake = wake

    @property
    def readers(self) -> list[int]:
        """Descriptors to wait for."""
        return [self._wake, sys.stdin.fileno()] if self._open else [self._wake]

    def take(self, ready: list[int]) -> list[list[str]]:
        """The commands that came, each split into words; ``stop`` only sets ``stopped``."""
        if self._wake in ready:
            os.read(self._wake, 4096)
        if sys.stdin.fileno() not in ready or not self._open:
            return []
        chunk = os.read(sys.stdin.fileno(), 4096)
        self._open = bool(chunk)
        *lines, self._text = (self._text + chunk).split(b"\n")
        commands = [words for line in lines if (words := line.decode(errors="replace").split())]
        self.stopped = self.stopped or ["stop"] in commands
        return [words for words in commands if words != ["stop"]]

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.stopped = True


def _say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


# ---- sending


class Sender:
    """Sends a stream at a steady rate.

    Args:
        interface: to send through.
        frames: what to send.
        rate: packets per second.
        count: how many; None goes on until told to stop.
    """

    def __init__(self, interface: str, frames: FrameMaker, rate: float, count: int | None) -> None:
        self._frames = frames
        self._count = count
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # protocol 0: it receives nothing
        self._socket.bind((interface, 0))
        self._longest_pause_ns = 0
        self._last_ns: int | None = None
        self._failed = 0
        self.sent = 0
        self._set_rate(rate)

    def run(self) -> None:
        """Send until the end, then say how many."""
        commands = _Commands()
        _say("ready")
        self._set_rate(self._rate)
        while not commands.stopped and (self._count is None or self.sent < self._count):
            wait_s = self._send_due()
            ready, _, _ = select.select(commands.readers, [], [], wait_s)
            for words in commands.take(ready):
                self._obey(words)
        self._say_end()
        pause_ms = self._longest_pause_ns / 1e6
        _say("report", sent=self.sent, longest_pause_ms=pause_ms, failed=self._failed)

    def _send_due(self) -> float:
        """Send what is due; returns how long to wait for the next, in seconds."""
        now = time.monotonic_ns()
        due = (now - self._epoch) // self._interval_ns + 1 - self._since_epoch
        if due * self._interval_ns > _CATCH_UP_NS:
            self._epoch, self._since_epoch = now, 0
            due = 1
        if self._count is not None:
            due = min(due, self._count - self.sent)
        for _ in range(min(due, _BURST_MAX)):
            self._send_one()
        next_at = self._epoch + self._since_epoch * self._interval_ns
        wait_ns = next_at - time.monotonic_ns()
        return 0.0 if wait_ns <= 0 else max(wait_ns / 1e9, _WAKE_MIN_S if self._rate > 1 / _WAKE_MIN_S else 0.0)

    def _send_one(self) -> None:
        now = time.time_ns()
        try:
            self._socket.send(self._frames.make(self.sent, now))
        except OSError:  # the interface is down, or its queue is full: the frame is lost like any other
            self._failed += 1
        self.sent += 1
        self._since_epoch += 1
        if self._last_ns is not None:
            self._longest_pause_ns = max(self._longest_pause_ns, now - self._last_ns)
        self._last_ns = now

    def _obey(self, words: list[str]) -> None:
        try:
            if words[0] == "use" and len(words) == 2:
                self._socket.bind((words[1], 0))
                _say("using", interface=words[1], number=self.sent)
            elif words[0] == "rate" and len(words) == 2:
                self._set_rate(float(words[1]))
                _say("rate", pps=self._rate)
            else:
                _say("error", problem=f"unknown command {' '.join(words)!r}; expected: use INTERFACE, rate PPS, stop")
        except (OSError, ValueError) as error:
            _say("error", problem=f"{' '.join(words)}: {error}")

    def _set_rate(self, rate: float) -> None:
        if rate <= 0:
            raise ValueError(f"rate {rate}: expected more than 0 packets/s")
        self._rate = rate
        self._interval_ns = max(1, round(1e9 / rate))
        self._epoch, self._since_epoch = time.monotonic_ns(), 0

    def _say_end(self) -> None:
        """Tell the receiver how many there were, more than once: these frames may be lost too."""
        started = time.monotonic()
        for at_s in _END_AT_S:
            time.sleep(max(0.0, started + at_s - time.monotonic()))
            try:
                self._socket.send(self._frames.make(self.sent, time.time_ns(), END))
            except OSError:
                continue


# ---- receiving


class Receiver:
    """Receives a stream on any of a host's interfaces, in the order of arrival across all of them.

    Args:
        stream: number of the stream.
        interfaces: to listen on.
        duration_s: how long to listen at most; None is without limit.
        linger_s: how long to wait for stragglers after the sender's last frame.
    """

    def __init__(self, stream: int, interfaces: list[str], duration_s: float | None, linger_s: float) -> None:
        self._duration_s = duration_s
        self._linger_s = linger_s
        self._tally = Tally()
        self._sent: int | None = None
        self._buffer = bytearray(_SNAP_BYTES)
        # one socket for all interfaces: two would lose the order between them
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_IP))
        self._attach_filter(stream, [socket.if_nametoindex(name) for name in interfaces])
        self._enlarge_buffer()
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setblocking(False)
        # bound here, or the host's kernel would answer each frame by "port unreachable"
        self._port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._port.bind(("", UDP_PORT))
        self._discard()

    def run(self) -> None:
        """Receive until the sender's end, a command, or the time is up; then report."""
        commands = _Commands()
        deadline = None if self._duration_s is None else time.monotonic() + self._duration_s
        ended_at: float | None = None
        _say("ready", buffer_bytes=self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        while not commands.stopped:
            if self._sent is not None and ended_at is None:
                ended_at = time.monotonic() + self._linger_s
            limits = [limit for limit in (deadline, ended_at) if limit is not None]
            wait_s = max(0.0, min(limits) - time.monotonic()) if limits else None
            if wait_s == 0.0:
                break
            ready, _, _ = select.select([*commands.readers, self._socket.fileno()], [], [], wait_s)
            for words in commands.take(ready):
                _say("error", problem=f"unknown command {' '.join(words)!r}; expected: stop")
            self._drain()
        self._drain()
        report = self._tally.report(self._sent, self._overflowed())
        _say("report", **report.to_json())

    def _drain(self) -> None:
        receive, buffer = self._socket.recvmsg_into, self._buffer
        while True:
            try:
                size, ancillary, _, address = receive([buffer], 64)
            except BlockingIOError:
                return
            mark = read_mark(memoryview(buffer)[:size])
            if mark is None:
                continue
            if mark.kind == DATA:
                self._tally.arrived(mark.number, mark.sent_ns, _timestamp(ancillary), address[0])
            elif mark.kind == END:
                self._sent = mark.number

    def _attach_filter(self, stream: int, interfaces: list[int]) -> None:
        """Let the kernel pick the stream's frames; what else arrives does not wake this process."""
        load_word, load_half, load_byte, equal, give = 0x20, 0x28, 0x30, 0x15, 0x06
        index_of_interface = 0xFFFFF000 + 8  # SKF_AD_OFF + SKF_AD_IFINDEX
        tests = [
            (load_half, 12, _ETH_P_IP),
            (load_byte, 23, socket.IPPROTO_UDP),
            (load_word, MAGIC_AT, int.from_bytes(MAGIC, "big")),
            (load_word, STREAM_AT, stream),
        ]
        length = 2 * len(tests) + 1 + len(interfaces) + 2
        program = []
        for load, offset, value in tests:
            program += [(load, 0, 0, offset), (equal, 0, length - 1 - (len(program) + 2), value)]
        program.append((load_word, 0, 0, index_of_interface))
        for position, index in enumerate(interfaces):
            remaining = len(interfaces) - 1 - position
            program.append((equal, remaining, 0 if remaining else 1, index))
        program += [(give, 0, 0, 0xFFFF), (give, 0, 0, 0)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
        packed = struct.pack("HP", len(program), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, packed)

    def _discard(self) -> None:
        """Drop what arrived before the filter was attached."""
        while True:
            try:
                self._socket.recv(1)
            except BlockingIOError:
                return

    def _enlarge_buffer(self) -> None:
        """8 MiB where this user may, as much as the machine allows otherwise."""
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
                return
            except PermissionError:
                continue

    def _overflowed(self) -> int:
        """Frames that the socket had no room for, by the kernel's count (struct tpacket_stats)."""
        return struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]


def _timestamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds * 1_000_000_000 + nanoseconds
    return time.time_ns()


# ---- command line


def _endpoint(text: str) -> Endpoint:
    mac, _, ip = text.partition(",")
    if not ip:
        raise argparse.ArgumentTypeError(f"{text!r}: expected MAC,IP such as 02:00:00:00:00:01,10.0.0.1")
    return Endpoint(mac, ip)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.stream", description="Traffic with numbered frames.")
    modes = parser.add_subparsers(required=True)
    send = modes.add_parser("send", help="send a stream")
    send.add_argument("--interface", required=True, help="to send through; changed by the command: use INTERFACE")
    send.add_argument("--from", dest="source", type=_endpoint, required=True, metavar="MAC,IP")
    send.add_argument("--to", dest="target", type=_endpoint, required=True, metavar="MAC,IP")
    send.add_argument("--rate", type=float, default=1000.0, help="packets/s (1000)")
    send.add_argument("--count", type=int, help="how many; without it, and --duration, until told to stop")
    send.add_argument("--duration", type=float, help="seconds to send; as many as the rate gives in that time")
    send.add_argument("--size", type=int, default=128, help="bytes of a frame without its checksum (128)")
    send.add_argument("--stream", type=int, default=1, help="number of the stream (1)")
    send.set_defaults(run=_send)
    receive = modes.add_parser("receive", help="receive a stream and report")
    receive.add_argument("--interface", action="append", required=True, help="to listen on; may be repeated")
    receive.add_argument("--stream", type=int, default=1, help="number of the stream (1)")
    receive.add_argument("--duration", type=float, help="seconds to listen at most")
    receive.add_argument("--linger", type=float, default=0.3, help="seconds to wait after the sender's end (0.3)")
    receive.set_defaults(run=_receive)
    return parser


def _send(options: argparse.Namespace) -> None:
    frames = FrameMaker(options.source, options.target, options.stream, options.size)
    count = options.count if options.duration is None else round(options.rate * options.duration)
    Sender(options.interface, frames, options.rate, count).run()


def _receive(options: argparse.Namespace) -> None:
    Receiver(options.stream, options.interface, options.duration, options.linger).run()


def main() -> int:
    """Entry point."""
    options = _parser().parse_args()
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
    except (OSError, ValueError) as error:
        _say("error", problem=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
