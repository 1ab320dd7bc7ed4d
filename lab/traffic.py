"""Streams between hosts of a running lab: `lab.stream` at both ends, controlled from outside."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from lab.ends import End
from lab.frames import Endpoint
from lab.tally import StreamReport

if TYPE_CHECKING:
    from lab.server import Lab

_END_S = 30.0


class Stream:
    """Numbered frames from one host to another, received on all interfaces of the latter.

    It sends until `stop`, or until it has sent ``count`` frames.

    Args:
        lab: a running lab of the substrate netns.
        source: the sending host; its active interface is used until `use`.
        target: the receiving host.
        rate: packets per second.
        count: number of frames; None: until `stop`.
        size: bytes of a frame without its checksum.
        number: number of the stream; concurrent streams need different ones.
        flows: number of UDP flows, which take turns.
        to: destination of the frames, if not the target itself: a network function forwards them to it.

    Raises:
        ControlError: an end could not start; with its message.

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
        flows: int = 1,
        to: Endpoint | None = None,
    ) -> None:
        sending, receiving = lab.host(source), lab.host(target)
        to = to or Endpoint(receiving.mac, receiving.ip)
        listen = [f"--interface={each.name}" for each in receiving.interfaces]
        self._receiver = End(lab, target, "lab.stream", ["receive", f"--stream={number}", *listen])
        try:
            self._sender = End(
                lab,
                source,
                "lab.stream",
                [
                    "send",
                    f"--interface={sending.active}",
                    f"--from={sending.mac},{sending.ip}",
                    f"--to={to.mac},{to.ip}",
                    f"--rate={rate}",
                    f"--size={size}",
                    f"--stream={number}",
                    f"--flows={flows}",
                    *([f"--count={count}"] if count is not None else []),
                ],
            )
        except BaseException:
            self._receiver.close()
            raise

    def use(self, interface: str) -> int:
        """Send through another interface of the source from now on; return the number of the first frame there.

        Raises:
            ControlError: unknown interface.
        """
        self._sender.tell(f"use {interface}")
        return int(self._sender.await_event("using")["number"])

    def set_rate(self, pps: float) -> None:
        """Continue at another rate, in packets per second."""
        self._sender.tell(f"rate {pps}")
        self._sender.await_event("rate")

    def stop(self) -> StreamReport:
        """Stop sending, wait for frames in flight, and report."""
        self._sender.tell("stop")
        return self.wait()

    def wait(self, timeout_s: float = _END_S) -> StreamReport:
        """Wait until ``count`` frames were sent, and report.

        Args:
            timeout_s: time limit for the sender.

        Raises:
            TimeoutError: the time limit expired.
            ControlError: an end failed.
        """
        sent = self._sender.await_event("report", timeout_s)
        # the sender's last frames tell the receiver to finish; if they are lost, this command does
        try:
            received = self._receiver.await_event("report", 1.0)
        except TimeoutError:
            self._receiver.tell("stop")
            received = self._receiver.await_event("report")
        self.close()
        received.pop("event")
        return StreamReport.from_json(received).with_sender(sent["sent"], sent["longest_pause_ms"])

    def close(self) -> None:
        """End both ends; without a report, unless `stop` was called."""
        self._sender.close()
        self._receiver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
