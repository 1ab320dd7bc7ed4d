"""Streams between hosts of a running lab: `lab.stream` at both ends, steered from outside."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from lab.errors import ControlError
from lab.tally import StreamReport

if TYPE_CHECKING:
    from lab.server import HostProcess, Lab

_END_S = 30.0


class Stream:
    """Numbered frames from one host to another, received on all interfaces of the latter.

    It sends until `stop`, or until ``count`` frames are out.

    Args:
        lab: a running lab of the substrate netns.
        source: the sending host; its active interface is used until `use`.
        target: the receiving host.
        rate: packets per second.
        count: how many frames; None is until `stop`.
        size: bytes of a frame without its checksum.
        number: of the stream; streams that run at the same time need different ones.

    Raises:
        ControlError: an end could not start; its own words.

    Example:
        >>> with Stream(lab, "vm1", "vm2", rate=1000) as stream:        # doctest: +SKIP
        ...     move_the_port()
        ...     report = stream.stop()
        >>> report.lost, report.duplicated, report.reordered            # doctest: +SKIP
        (0, 0, 0)
    """

    def __init__(
        self,
        lab: "Lab",
        source: str,
        target: str,
        *,
        rate: float = 1000.0,
        count: int | None = None,
        size: int = 128,
        number: int = 1,
    ) -> None:
        sending, receiving = lab.host(source), lab.host(target)
        listen = [f"--interface={each.name}" for each in receiving.interfaces]
        self._receiver = _End(lab, target, ["receive", f"--stream={number}", *listen])
        try:
            self._sender = _End(
                lab,
                source,
                [
                    "send",
                    f"--interface={sending.active}",
                    f"--from={sending.mac},{sending.address.partition('/')[0]}",
                    f"--to={receiving.mac},{receiving.address.partition('/')[0]}",
                    f"--rate={rate}",
                    f"--size={size}",
                    f"--stream={number}",
                    *([f"--count={count}"] if count is not None else []),
                ],
            )
        except BaseException:
            self._receiver.close()
            raise

    def use(self, interface: str) -> int:
        """Send through another interface of the source from now on; returns the number of the first frame there.

        Raises:
            ControlError: there is no such interface.
        """
        self._sender.tell(f"use {interface}")
        return int(self._sender.await_event("using")["number"])

    def set_rate(self, pps: float) -> None:
        """Go on at another rate, in packets per second."""
        self._sender.tell(f"rate {pps}")
        self._sender.await_event("rate")

    def stop(self) -> StreamReport:
        """Stop sending, wait for what is under way, and report."""
        self._sender.tell("stop")
        return self.wait()

    def wait(self, timeout_s: float = _END_S) -> StreamReport:
        """Wait until ``count`` frames were sent, and report.

        Args:
            timeout_s: how long the sender may take.

        Raises:
            TimeoutError: it took longer.
            ControlError: an end failed.
        """
        sent = self._sender.await_event("report", timeout_s)
        # the sender's last frames tell the receiver to finish; where they got lost it has to be told
        try:
            received = self._receiver.await_event("report", 1.0)
        except TimeoutError:
            self._receiver.tell("stop")
            received = self._receiver.await_event("report")
        self.close()
        received.pop("event")
        return StreamReport.from_json(received).with_sender(sent["sent"], sent["longest_pause_ms"])

    def close(self) -> None:
        """End both ends; without a report, if `stop` was not called."""
        self._sender.close()
        self._receiver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _End:
    """One end of a stream: a process inside a host that takes commands and says JSON lines."""

    def __init__(self, lab: "Lab", host: str, arguments: Sequence[str]) -> None:
        self._host = host
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._received = b""
        self._process: HostProcess = lab.popen(host, [sys.executable, "-m", "lab.stream", *arguments], **pipes)
        try:
            self.await_event("ready")
        except BaseException:
            self.close()
            raise

    def tell(self, command: str) -> None:
        """Send a command; an end that has ended already needs none."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe("stdin").fileno(), f"{command}\n".encode())

    def await_event(self, event: str, timeout_s: float = _END_S) -> dict[str, Any]:
        """Read up to that event and return it.

        Raises:
            TimeoutError: it did not come in time.
            ControlError: the end reported an error, or ended; its own words.
        """
        deadline = time.monotonic() + timeout_s
        said = ""
        while True:
            line = self._read_line(deadline, event)
            if not line:
                raise ControlError(
                    f"a stream's end in host {self._host} ended before it was {event!r}: {said or 'silent'}"
                )
            try:
                message = json.loads(line)
            except ValueError:
                said += line  # Python's own words about a failure
                continue
            if message["event"] == "error":
                raise ControlError(f"a stream's end in host {self._host}: {message['problem']}")
            if message["event"] == event:
                return message

    def close(self) -> None:
        """End the process, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def _read_line(self, deadline: float, event: str) -> str:
        """The next line, "" at the end of file."""
        output = self._pipe("stdout").fileno()
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise TimeoutError(f"a stream's end in host {self._host} did not say {event!r} in time")
            chunk = os.read(output, 65536)
            if not chunk:
                return ""
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace")

    def _pipe(self, name: str) -> IO[bytes]:
        return getattr(self._process, name)
