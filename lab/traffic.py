"""Streams between hosts of a running lab: `lab.stream` at both ends, steered from outside."""

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

    It sends until `stop`, or until ``count`` frames are out.

    Args:
        lab: a running lab of the substrate netns.
        source: the sending host; its active interface is used until `use`.
        target: the receiving host.
        rate: packets per second.
        count: how many frames; None is until `stop`.
        size: bytes of a frame without its checksum.
        number: of the stream; streams that run at the same time need different ones.
        to: where the frames are addressed to, if not to the target itself: a network function passes them on to it.

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
