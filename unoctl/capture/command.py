"""The command ``unoctl capture``: where the packets go, and the summary."""

import os
import queue
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from server.errors import ToolError, UsageError
from unoctl.capture.follow import Follower, Limits, Tally
from unoctl.capture.place import Place, enter
from unoctl.capture.tap import Packet, Tap
from unoctl.render import View, table
from unoctl.session import Session


@dataclass(frozen=True)
class Wanted:
    """The operator's wishes.

    Attributes:
        filters: words of pcap-filter(7).
        file: the capture's file; None: stdout.
        enter: command that reaches the switch's machine; None: found by the control socket.
    """

    port: str
    filters: Sequence[str]
    file: Path | None
    limits: Limits
    snaplen: int
    enter: str | None


def run(session: Session, wanted: Wanted) -> View | None:
    """Capture until a limit, SIGINT, SIGTERM or the reader's end.

    Returns:
        The summary; None if the packets went to stdout. Then a note tells it.
    """
    _check(wanted.filters)
    with session.client() as client, _destination(wanted.file) as out:
        number = client.find_port(wanted.port).number
        open_tap = partial(_open, session, wanted)
        follower = Follower(partial(client.port, number), open_tap, partial(_write, out), session.output.note)
        with closing(follower), suppress(KeyboardInterrupt, BrokenPipeError):
            _let_signals_interrupt()
            follower.run(wanted.limits)
    if wanted.file is not None:
        return _view(follower.tally)
    session.output.note(_summary(follower.tally))
    return None


def _let_signals_interrupt() -> None:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt; a shell's background job would ignore SIGINT."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def _check(filters: Sequence[str]) -> None:
    """Let tcpdump compile a filter.

    Raises:
        UsageError: it does not.
    """
    command = ["tcpdump", "-d", "-y", "EN10MB", "--", *filters]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ToolError(f"cannot run tcpdump: {error.strerror}; install the package tcpdump") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise UsageError(f"filter {' '.join(filters)!r}: {said.removeprefix('tcpdump: ')}; see pcap-filter(7)")


def _open(session: Session, wanted: Wanted, place: Place, packets: "queue.Queue[Packet]") -> Tap:
    prefix = enter(session.server, place.switch) if wanted.enter is None else shlex.split(wanted.enter)
    return Tap(place, prefix, wanted.filters, wanted.snaplen, packets)


def _write(out: IO[bytes], data: bytes) -> None:
    out.write(data)
    out.flush()


@contextmanager
def _destination(file: Path | None) -> Iterator[IO[bytes]]:
    """Open the capture's file; without one, stdout, where a terminal gets text."""
    if file is not None:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror}") from error
        with os.fdopen(descriptor, "wb") as out:
            yield out
    elif sys.stdout.isatty():
        with _as_text() as out:
            yield out
    else:
        try:
            yield sys.stdout.buffer
        finally:
            # The reader may have ended: Python's own flush at exit would complain.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())


@contextmanager
def _as_text() -> Iterator[IO[bytes]]:
    # In a session of its own, SIGINT does not end it before the last packets.
    printer = subprocess.Popen(
        ["tcpdump", "-n", "-l", "-r", "-"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert printer.stdin is not None
    try:
        yield printer.stdin
    finally:
        printer.stdin.close()
        printer.wait()


def _view(tally: Tally) -> View:
    data = {
        "packets": tally.packets,
        "bytes": tally.bytes,
        "dropped": tally.dropped,
        "places": [{"switch": place.switch, "interface": place.interface} for place in tally.places],
        "ended": tally.ended,
    }
    row = (tally.packets, tally.bytes, tally.dropped, _route(tally), tally.ended)
    return View(
        data, table(("PACKETS", "BYTES", "DROPPED", "AT", "ENDED BY"), [row], right=("PACKETS", "BYTES", "DROPPED"))
    )


def _summary(tally: Tally) -> str:
    ended = f"; ended by {tally.ended}" if tally.ended else ""
    return f"{tally.packets} packets, {tally.bytes} bytes, {tally.dropped} dropped; at {_route(tally)}{ended}"


def _route(tally: Tally) -> str:
    return ", then ".join(map(str, tally.places))
