"""Web servers and HTTP clients in hosts of a running lab, controlled from outside."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from lab.ends import End, Hosts
from lab.http_report import HttpReport, Kind, by_server

_TIMEOUT_S = 5.0
_SOON_S = 20.0


class WebServer:
    """A web server in a host, on port 80; it answers with the host's name, padded to ``size`` bytes.

    Raises:
        ControlError: it does not listen; with its message.
    """

    def __init__(self, lab: Hosts, host: str, size: int = 0) -> None:
        self._end = End(lab, host, "lab.web", [f"--name={host}", f"--size={size}"])

    def close(self) -> None:
        """End it."""
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class HttpClient:
    """An HTTP client in a host: requests at a steady rate, each counted, over kept connections and over new ones.

    Args:
        lab: a running lab of the substrate netns.
        host: host of the client.
        address: of the service, port 80.
        kept: connections to keep; opened at the start.
        requests: ``HOST/PATH`` of each; sent in turn by each kept connection, and by the new ones together.
        timeout_s: a request that takes longer has failed.

    Raises:
        ControlError: a connection could not be opened; with the client's message.
    """

    def __init__(
        self,
        lab: Hosts,
        host: str,
        address: str,
        kept: int = 10,
        requests: Sequence[str] = (),
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.host = host
        arguments = [f"--address={address}", f"--kept={kept}", f"--timeout={timeout_s}"]
        arguments += [f"--request={each}" for each in requests]
        self._end = End(lab, host, "lab.http_load", arguments)

    def rate(self, kept: float, new: float) -> None:
        """Set the requests per second: over the kept connections, and each over a connection of its own."""
        self._end.ask(f"rate {kept} {new}", "rate")

    def phase(self, name: str) -> float:
        """Count under another name from now on; return the start, in seconds since 1970."""
        return float(self._end.ask(f"phase {name}", "phase")["at"])

    def status(self) -> dict[str, Any]:
        """Return ``sent``, ``answered`` and ``failed`` so far.

        ``first_answer`` (or None) and ``answers`` are those of this phase, by kind; see `Count`.
        """
        return self._end.ask("status", "status")

    def answered(self, *requests: str, kinds: Sequence[Kind] = ("kept", "new")) -> dict[str, int]:
        """Count the answers of each server in this phase, to these requests or to all."""
        answers = self.status()["answers"]
        counts: Counter[str] = Counter()
        for kind in kinds:
            counts.update(by_server(answers[kind], *requests))
        return dict(sorted(counts.items()))

    def await_answers(self, count: int, server: str = "-", *requests: str, timeout_s: float = _SOON_S) -> bool:
        """Wait until this phase has that many answers.

        Args:
            count: of answers.
            server: only its answers count; ``-``: those of all.
            requests: only answers to these count; none: to all.
            timeout_s: time limit, less than 30 s.

        Returns:
            whether they came in time.
        """
        return self._end.ask(f"await {count} {timeout_s} {' '.join((server, *requests))}", "awaited")["reached"]

    def stop(self) -> HttpReport:
        """Stop, wait for pending requests, and report."""
        told = self._end.ask("stop", "report")
        self.close()
        return HttpReport.from_json({"phases": told["phases"], "failures": told["failures"]})

    def close(self) -> None:
        """End it; without a report, unless `stop` was called."""
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
