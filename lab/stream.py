"""``python -m lab.stream send|receive``: traffic with numbered frames, over raw sockets, to run inside hosts.

Both print JSON lines: ``{"event": "ready"}`` once running, and ``{"event": "report", ...}`` at the end. Both read
commands from standard input: ``stop``; the sender also ``use INTERFACE`` (answered by ``{"event": "using", ...}``) and
``rate PPS``. They ignore end of file there. SIGTERM and SIGINT work like ``stop``.

It imports little, because it starts once per direction and measurement.
"""

import argparse
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

from lab.commands import Commands, say
from lab.frames import DATA, END, MAGIC, MAGIC_AT, STREAM_AT, UDP_PORT, Endpoint, FrameMaker, read_mark
from lab.listening import SO_TIMESTAMPNS, Field, listen, overflowed
from lab.tally import Tally

_SNAP_BYTES = 128

_WAKE_MIN_S = 0.0005  # above 2,000 packets/s each wake-up sends several
_BURST_MAX = 64
_CATCH_UP_NS = 100_000_000  # a sender delayed for longer continues from there instead of bursting
_END_AT_S = (0.0, 0.01, 0.03)


# ---- sending


class Sender:
    """Sends a stream at a steady rate.

    Args:
        interface: interface to send through.
        frames: frames to send.
        rate: packets per second.
        count: number of frames; None: until stopped.
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
        """Send until the end, then report the count."""
        commands = Commands()
        say("ready")
        self._set_rate(self._rate)
        while not commands.stopped and (self._count is None or self.sent < self._count):
            wait_s = self._send_due()
            ready, _, _ = select.select(commands.readers, [], [], wait_s)
            for words in commands.take(ready):
                self._obey(words)
        self._say_end()
        pause_ms = self._longest_pause_ns / 1e6
        say("report", sent=self.sent, longest_pause_ms=pause_ms, failed=self._failed)

    def _send_due(self) -> float:
        """Send due frames; return the seconds until the next."""
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
        except OSError:  # the interface is down, or its queue is full: count the frame as lost
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
                say("using", interface=words[1], number=self.sent)
            elif words[0] == "rate" and len(words) == 2:
                self._set_rate(float(words[1]))
                say("rate", pps=self._rate)
            else:
                say("error", problem=f"unknown command {' '.join(words)!r}; expected: use INTERFACE, rate PPS, stop")
        except (OSError, ValueError) as error:
            say("error", problem=f"{' '.join(words)}: {error}")

    def _set_rate(self, rate: float) -> None:
        if rate <= 0:
            raise ValueError(f"rate {rate}: expected more than 0 packets/s")
        self._rate = rate
        self._interval_ns = max(1, round(1e9 / rate))
        self._epoch, self._since_epoch = time.monotonic_ns(), 0

    def _say_end(self) -> None:
        """Tell the receiver the count, repeatedly, because these frames may be lost too."""
        started = time.monotonic()
        for at_s in _END_AT_S:
            time.sleep(max(0.0, started + at_s - time.monotonic()))
            try:
                self._socket.send(self._frames.make(self.sent, time.time_ns(), END))
            except OSError:
                continue


# ---- receiving


class Receiver:
    """Receives a stream on any of a host's interfaces, in order of arrival across all of them.

    Args:
        stream: number of the stream.
        interfaces: interfaces to listen on.
        duration_s: time limit; None: unlimited.
        linger_s: how long to wait for stragglers after the sender's last frame.
    """

    def __init__(self, stream: int, interfaces: list[str], duration_s: float | None, linger_s: float) -> None:
        self._duration_s = duration_s
        self._linger_s = linger_s
        self._tally = Tally()
        self._sent: int | None = None
        self._buffer = bytearray(_SNAP_BYTES)
        fields = [
            Field.byte(23, socket.IPPROTO_UDP),
            Field.word(MAGIC_AT, int.from_bytes(MAGIC, "big")),
            Field.word(STREAM_AT, stream),
        ]
        self._socket = listen(fields, interfaces)
        # bound here, or the host's kernel would answer each frame with "port unreachable"
        self._port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._port.bind(("", UDP_PORT))

    def run(self) -> None:
        """Receive until the sender's end, a command, or the time limit; then report."""
        commands = Commands()
        deadline = None if self._duration_s is None else time.monotonic() + self._duration_s
        ended_at: float | None = None
        say("ready", buffer_bytes=self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        while not commands.stopped:
            if self._sent is not None and ended_at is None:
                ended_at = time.monotonic() + self._linger_s
            limits = [limit for limit in (deadline, ended_at) if limit is not None]
            wait_s = max(0.0, min(limits) - time.monotonic()) if limits else None
            if wait_s == 0.0:
                break
            ready, _, _ = select.select([*commands.readers, self._socket.fileno()], [], [], wait_s)
            for words in commands.take(ready):
                say("error", problem=f"unknown command {' '.join(words)!r}; expected: stop")
            self._drain()
        self._drain()
        report = self._tally.report(self._sent, overflowed(self._socket))
        say("report", **report.to_json())

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


def _timestamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
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
    send.add_argument("--interface", required=True, help="first interface; the command use INTERFACE changes it")
    send.add_argument("--from", dest="source", type=_endpoint, required=True, metavar="MAC,IP")
    send.add_argument("--to", dest="target", type=_endpoint, required=True, metavar="MAC,IP")
    send.add_argument("--rate", type=float, default=1000.0, help="packets/s (1000)")
    send.add_argument("--count", type=int, help="number of frames; without it and --duration, until stopped")
    send.add_argument("--duration", type=float, help="seconds to send")
    send.add_argument("--size", type=int, default=128, help="bytes of a frame without its checksum (128)")
    send.add_argument("--stream", type=int, default=1, help="number of the stream (1)")
    send.add_argument("--flows", type=int, default=1, help="number of UDP flows, which take turns (1)")
    send.set_defaults(run=_send)
    receive = modes.add_parser("receive", help="receive a stream and report")
    receive.add_argument("--interface", action="append", required=True, help="interface to listen on; may be repeated")
    receive.add_argument("--stream", type=int, default=1, help="number of the stream (1)")
    receive.add_argument("--duration", type=float, help="seconds to listen at most")
    receive.add_argument("--linger", type=float, default=0.3, help="seconds to wait after the sender's end (0.3)")
    receive.set_defaults(run=_receive)
    return parser


def _send(options: argparse.Namespace) -> None:
    frames = FrameMaker(options.source, options.target, options.stream, options.size, options.flows)
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
        say("error", problem=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
