"""``python -m lab.flow_ends send|record``: both ends of traffic of many flows, to run inside hosts.

Commands are those of `lab.stream`. The sender starts silent: ``fill`` sends a frame of each flow, as fast as they
arrive (answer: ``filled``), ``rate PPS BURST`` continues at a rate (0: silent), in bursts of this number of frames of
one flow, ``mark`` reports how many were sent. The recorder appends a record for each arrival to a file.
"""

import argparse
import gc
import os
import select
import socket
import sys
import time
from pathlib import Path

from lab.commands import Commands, say
from lab.flow_frames import FORMS, FRAME_BYTES, RECORD, FlowFrames, Form, Service
from lab.listening import SO_TIMESTAMPNS, listen, overflowed

_WAKE_MIN_S = 0.0003  # at high rates each wake-up sends several
_TURN_MAX = 64
_CATCH_UP_NS = 100_000_000  # a sender delayed for longer continues from there instead of bursting
_WINDOW = 2000  # frames in flight while flows are created; fewer than any queue of the switches holds
_STALLED_S = 0.3
_SNAP_BYTES = 128
_TIMESPEC_BYTES = 16
_PACKET_VNET_HDR = 15  # Linux, include/uapi/linux/if_packet.h
_SOL_PACKET = 263
_WRITE_RECORDS = 512


class FlowSender:
    """Sends frames of all flows in turn.

    Args:
        interface: interface to send through.
        frames: frames to send.
        recorded: the recorder's file; its length tells the sender how many frames have arrived.
    """

    def __init__(self, interface: str, frames: FlowFrames, recorded: str) -> None:
        self._frames = frames
        self._recorded = recorded
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # protocol 0: it receives nothing
        self._socket.bind((interface, 0))
        self._bursts = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._bursts.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        self._bursts.bind((interface, 0))
        self._burst = 1
        self._sent = self._failed = 0
        self._interval_ns: int | None = None
        self._epoch = self._since_epoch = 0
        self._last_ns: int | None = None
        self._longest_pause_ns = 0

    def run(self) -> None:
        """Execute commands until ``stop``."""
        commands = Commands()
        say("ready")
        while not commands.stopped:
            wait_s = self._send_due()
            ready, _, _ = select.select(commands.readers, [], [], wait_s)
            for words in commands.take(ready):
                self._obey(words)
        self._say_sent("report")

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["fill"]:
                self._fill()
                self._say_sent("filled")
            case ["rate", pps, burst]:
                rate, self._burst = float(pps), int(burst)
                self._interval_ns = max(1, round(1e9 / rate)) if rate > 0 else None
                self._epoch, self._since_epoch, self._last_ns = time.monotonic_ns(), 0, None
                self._say_sent("rate")
            case ["mark"]:
                self._say_sent("mark")
            case _:
                say("error", problem=f"unknown command {' '.join(words)!r}; expected: fill, rate PPS BURST, mark, stop")

    def _fill(self) -> None:
        """Send one frame of each flow, with no more in flight than queues hold."""
        before = _records(self._recorded)
        first, lost, newest, since = self._sent, 0, before, time.monotonic()
        for _ in range(self._frames.flows):
            while self._sent - first - lost - (newest - before) >= _WINDOW:
                arrived = _records(self._recorded)
                if arrived != newest:
                    newest, since = arrived, time.monotonic()
                elif time.monotonic() - since > _STALLED_S:
                    lost = self._sent - first - (newest - before)
                else:
                    time.sleep(0.0005)
            self._send_one()

    def _send_due(self) -> float | None:
        """Send due frames; return the seconds until the next."""
        if self._interval_ns is None:
            return None
        now = time.monotonic_ns()
        due = (now - self._epoch) // self._interval_ns + 1 - self._since_epoch
        if due * self._interval_ns > _CATCH_UP_NS:
            self._epoch, self._since_epoch, due = now, 0, 1
        if due > 0:
            self._longest_pause_ns = max(self._longest_pause_ns, now - (self._last_ns or now))
            self._last_ns = now
        for _ in range(min(due, _TURN_MAX) // self._burst):
            self._send()
            self._since_epoch += self._burst
        next_due = self._since_epoch + self._burst - 1
        wait_ns = self._epoch + next_due * self._interval_ns - time.monotonic_ns()
        return 0.0 if wait_ns <= 0 else max(wait_ns / 1e9, _WAKE_MIN_S)

    def _send(self) -> None:
        if self._burst == 1:
            self._send_one()
            return
        try:
            self._bursts.send(self._frames.burst(self._sent, self._burst, time.time_ns()))
        except OSError:
            self._failed += self._burst
        self._sent += self._burst

    def _send_one(self) -> None:
        try:
            self._socket.send(self._frames.make(self._sent, time.time_ns()))
        except OSError:  # the interface is down, or its queue is full: count the frame as lost
            self._failed += 1
        self._sent += 1

    def _say_sent(self, event: str) -> None:
        pause_ms = self._longest_pause_ns / 1e6
        say(event, sent=self._sent, failed=self._failed, longest_pause_ms=pause_ms)


class Recorder:
    """Records arrivals, in order across all interfaces.

    Args:
        interfaces: interfaces to listen on.
        path: file that gets the records.
        form: of the frames.
    """

    def __init__(self, interfaces: list[str], path: str, form: Form) -> None:
        self._socket = listen(form.filter, interfaces)
        self._form = form
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._buffer = bytearray(_SNAP_BYTES)

    def run(self) -> None:
        """Record until ``stop``."""
        commands = Commands()
        say("ready")
        while not commands.stopped:
            ready, _, _ = select.select([*commands.readers, self._socket.fileno()], [], [])
            commands.take(ready)
            self._drain()
        self._drain()
        say("report", overflowed=overflowed(self._socket))

    def _drain(self) -> None:
        receive, buffer, records = self._socket.recvmsg_into, self._buffer, []
        note, least = self._form.note, FRAME_BYTES + self._form.more_bytes
        while True:
            try:
                size, ancillary, _, _ = receive([buffer], 64)
            except BlockingIOError:
                break
            if size >= least:
                records.append(note(buffer, _timestamp(ancillary)))
            if len(records) >= _WRITE_RECORDS:
                os.write(self._file, b"".join(records))
                records.clear()
        if records:
            os.write(self._file, b"".join(records))


def _timestamp(ancillary: list[tuple[int, int, bytes]]) -> bytes:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            return data[:_TIMESPEC_BYTES]
    raise OSError("the kernel did not report a frame's arrival time (SO_TIMESTAMPNS)")


def _records(path: str) -> int:
    return Path(path).stat().st_size // RECORD.size


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.flow_ends", description="Traffic of many flows.")
    modes = parser.add_subparsers(dest="mode", required=True)
    send = modes.add_parser("send", help="send frames of all flows in turn")
    send.add_argument("--interface", required=True)
    send.add_argument("--source", required=True, metavar="MAC")
    send.add_argument("--service", required=True, metavar="MAC,IP,PORT")
    send.add_argument("--flows", type=int, required=True)
    send.add_argument("--recorded", required=True, metavar="FILE", help="file of the recorder")
    send.add_argument("--renewed", action="store_true", help="other ports in each round")
    record = modes.add_parser("record", help="record what arrives at the backends")
    record.add_argument("--interface", action="append", required=True)
    record.add_argument("--file", required=True)
    record.add_argument("--form", choices=FORMS, default="ipip", help="the load balancer's mode")
    return parser


def main() -> int:
    """Entry point."""
    options = _parser().parse_args()
    gc.disable()  # its pauses would be measured
    try:
        if options.mode == "send":
            mac, address, port = options.service.split(",")
            frames = FlowFrames(
                options.source, Service(mac, address, int(port)), options.flows, renewed=options.renewed
            )
            FlowSender(options.interface, frames, options.recorded).run()
        else:
            Recorder(options.interface, options.file, FORMS[options.form]).run()
    except (OSError, ValueError) as error:
        say("error", problem=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
