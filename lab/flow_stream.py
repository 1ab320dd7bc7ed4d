"""Traffic of many flows through a network function of a lab: `lab.flow_ends` at both ends, controlled from outside."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lab.ends import End
from lab.errors import ControlError
from lab.flow_frames import RECORD, Service
from lab.flow_tally import Arrival

if TYPE_CHECKING:
    from lab.server import Lab

_POLL_S = 0.005
_FILL_S = 300.0
_CHUNK_RECORDS = 1 << 16


class FlowStream:
    """Numbered frames of many flows to a virtual IP address; another host records those that arrive.

    It starts silent.

    Args:
        lab: a running lab of the substrate netns.
        source: the sending host.
        sink: the host that has all backends.
        service: the virtual address of the backends.
        flows: number of flows.
        mode: the load balancer's mode, a key of `FORMS`.
        renewed: whether the flows of each round have other ports than those of the round before.
        directory: for the file of arrivals.

    Raises:
        ControlError: an end could not start; with its message.
    """

    def __init__(
        self,
        lab: "Lab",
        source: str,
        sink: str,
        service: Service,
        flows: int,
        directory: Path,
        mode: str = "ipip",
        *,
        renewed: bool = False,
    ) -> None:
        sending, receiving = lab.host(source), lab.host(sink)
        self._path = directory / "arrivals"
        self._path.write_bytes(b"")
        self._read_to = 0
        listen = [f"--interface={each.name}" for each in receiving.interfaces]
        self._recorder = End(lab, sink, "lab.flow_ends", ["record", *listen, f"--file={self._path}", f"--form={mode}"])
        try:
            to = f"{service.mac},{service.address},{service.port}"
            options = [f"--interface={sending.active}", f"--source={sending.mac}", f"--service={to}"]
            options += [f"--flows={flows}", f"--recorded={self._path}"]
            options += ["--renewed"] if renewed else []
            self._sender = End(lab, source, "lab.flow_ends", ["send", *options])
        except BaseException:
            self._recorder.close()
            raise

    def fill(self) -> int:
        """Send a frame of each flow, as fast as they arrive; return how many were sent since the start."""
        self._sender.tell("fill")
        return self._sender.await_event("filled", _FILL_S)["sent"]

    def set_rate(self, pps: float, burst: int = 1) -> int:
        """Continue at this rate, in packets per second, 0 is silence; return how many frames were sent before.

        Args:
            pps: packets per second.
            burst: number of packets of one flow that leave at once.
        """
        self._sender.tell(f"rate {pps} {burst}")
        return self._sender.await_event("rate")["sent"]

    def sent(self) -> int:
        """Return how many frames were sent so far."""
        self._sender.tell("mark")
        return self._sender.await_event("mark")["sent"]

    def arrivals(self) -> Iterator[Arrival]:
        """Return the arrivals since the last call, in order of arrival."""
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            while chunk := file.read(_CHUNK_RECORDS * RECORD.size):
                whole = len(chunk) - len(chunk) % RECORD.size
                if not whole:
                    return
                self._read_to += whole
                file.seek(self._read_to)
                for number, sent, flow, backend, seconds, nanoseconds in RECORD.iter_unpack(chunk[:whole]):
                    yield Arrival(number, flow, backend, sent, seconds * 1_000_000_000 + nanoseconds)

    def settle(self, quiet_s: float, timeout_s: float) -> bool:
        """Wait until nothing has arrived for a while; return False after the time limit."""
        deadline, size, since = time.monotonic() + timeout_s, -1, time.monotonic()
        while time.monotonic() < deadline:
            now = self._path.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > quiet_s:
                return True
            time.sleep(_POLL_S)
        return False

    def stop(self) -> float:
        """Stop sending; return the longest pause of the sender itself, in ms.

        Raises:
            ControlError: the recorder's buffer overflowed, so its records are incomplete.
        """
        self._sender.tell("stop")
        report = self._sender.await_event("report")
        self._recorder.tell("stop")
        overflowed = self._recorder.await_event("report")["overflowed"]
        if overflowed:
            raise ControlError(f"the receive buffer overflowed by {overflowed} frames; raise net.core.rmem_max")
        return report["longest_pause_ms"]

    def close(self) -> None:
        """End both ends."""
        self._sender.close()
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
