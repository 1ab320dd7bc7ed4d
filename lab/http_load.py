"""``python -m lab.http_load``: HTTP requests at a steady rate, each counted. Runs inside a host.

Prints JSON lines: ``{"event": "ready"}`` when every kept connection is open, and ``{"event": "report", ...}`` at the
end. Reads commands from standard input: ``rate KEPT NEW`` (requests per second over kept connections, and over
connections of their own), ``phase NAME``, ``status``, ``await COUNT SECONDS SERVER [HOST/PATH...]`` (until this phase
has COUNT answers of that server, or of any: ``-``), ``stop``. It prints an event for each command, and
goes on when standard input ends.

Each ``--request HOST/PATH`` is sent in turn: by each kept connection, and by the new connections together. The first
word of an answer names the server, as `lab.web` does.

The client closes first, as most clients do, so the addresses in TIME_WAIT are its own.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from lab.commands import say
from lab.http_report import Count, Failure, HttpReport, Kind, by_server

_TICK_S = 0.005
_CATCH_UP_S = 0.1  # requests overdue for longer, because this process did not run, are not sent in a burst
_BODY_LINE = b"content-length:"
_ANY = "-"
_FAULTS = (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class Connection:
    """One connection to the server.

    Args:
        target: address and port.
        requests: each is ``HOST/PATH``.
    """

    def __init__(self, target: tuple[str, int], requests: Iterator[str]) -> None:
        self._target = target
        self._requests = requests
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.opened: float | None = None

    async def ask(self) -> tuple[str, str]:
        """Send the next request and read its whole answer, opening the connection first if necessary.

        Returns:
            the request, and the name of the server that answered.

        Raises:
            OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError: it failed.
        """
        if self._streams is None:
            await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        request = next(self._requests)
        host, _, path = request.partition("/")
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status, *fields = head.lower().split(b"\r\n")
        if b" 200 " not in status:
            raise ValueError(f"the answer begins with {status[:40]!r}")
        length = next((int(line[len(_BODY_LINE) :]) for line in fields if line.startswith(_BODY_LINE)), 0)
        body = await reader.readexactly(length)
        return request, next(iter(body.split(maxsplit=1)), b"").decode(errors="replace")

    async def open(self) -> None:
        """Open it; raises OSError."""
        self._streams = await asyncio.open_connection(*self._target)
        self.opened = time.time()

    def close(self, *, at_once: bool = False) -> None:
        """Close it; ``at_once``: without waiting for pending data."""
        if self._streams is not None:
            writer = self._streams[1]
            writer.transport.abort() if at_once else writer.close()
            self._streams, self.opened = None, None


@dataclass
class _Due:
    """The number of due requests of a kind."""

    rate: float = 0.0
    credit: float = 0.0

    def take(self, elapsed_s: float) -> int:
        self.credit += self.rate * min(elapsed_s, _CATCH_UP_S)
        due = int(self.credit)
        self.credit -= due
        return due


class HttpLoad:
    """Sends requests until stopped.

    Args:
        target: address and port.
        kept: number of kept connections.
        timeout_s: a request that takes longer has failed.
        requests: each is ``HOST/PATH``.
    """

    def __init__(self, target: tuple[str, int], kept: int, timeout_s: float, requests: Sequence[str]) -> None:
        self._target, self._timeout_s = target, timeout_s
        self._kept = [Connection(target, cycle(requests)) for _ in range(kept)]
        self._requests = cycle(requests)
        self._idle = deque(self._kept)
        self._due: dict[Kind, _Due] = {"kept": _Due(), "new": _Due()}
        self._report = HttpReport()
        self._counts = self._phase("start")
        self._under_way: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._answered = asyncio.Event()
        self._commands = b""

    async def run(self) -> None:
        """Run until ``stop``; then report."""
        await asyncio.gather(*(connection.open() for connection in self._kept))
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._obey_all)
        say("ready")
        last = time.monotonic()
        while not self._stopped.is_set():
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self._send_due(now - last)
            last = now
        await asyncio.gather(*self._under_way)
        say("report", **self._report.to_json())

    def _send_due(self, elapsed_s: float) -> None:
        for _ in range(self._due["kept"].take(elapsed_s)):
            if self._idle:
                self._start(self._ask_kept(self._idle.popleft(), self._counts["kept"]))
            else:
                self._counts["kept"].skipped += 1
        for _ in range(self._due["new"].take(elapsed_s)):
            self._start(self._ask("new", Connection(self._target, self._requests), self._counts["new"]))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask_kept(self, connection: Connection, count: Count) -> None:
        await self._ask("kept", connection, count)
        self._idle.append(connection)

    async def _ask(self, kind: Kind, connection: Connection, count: Count) -> None:
        began = time.time()
        count.sent += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await connection.ask()
        except _FAULTS as error:
            why = f"{type(error).__name__}: {error}"
            self._report.failures.append(Failure(kind, began, time.time(), connection.opened, why))
            connection.close(at_once=True)
            return
        count.took(began, time.time())
        count.answered_by(*answer)
        self._answered.set()
        if kind == "new":
            connection.close()

    async def _await(self, wanted: int, seconds: float, server: str, requests: list[str]) -> None:
        """Say whether this phase has that many answers within a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._answers_of(server, requests) < wanted:
                    self._answered.clear()
                    await self._answered.wait()
        say("awaited", reached=self._answers_of(server, requests) >= wanted)

    def _answers_of(self, server: str, requests: list[str]) -> int:
        found = [by_server(count.answers, *requests) for count in self._counts.values()]
        return sum(sum(each.values()) if server == _ANY else each.get(server, 0) for each in found)

    # ---- commands

    def _obey_all(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 4096)
        if not chunk:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        *lines, self._commands = (self._commands + chunk).split(b"\n")
        for line in lines:
            command = line.decode(errors="replace")
            try:
                self._obey(command.split())
            except (ValueError, IndexError, KeyError) as error:
                expected = "rate KEPT NEW, phase NAME, status, await COUNT SECONDS SERVER [HOST/PATH...], stop"
                say("error", problem=f"{command!r}: {type(error).__name__}: {error}; expected: {expected}")

    def _obey(self, words: list[str]) -> None:
        if words[0] == "rate":
            self._due["kept"].rate, self._due["new"].rate = float(words[1]), float(words[2])
            say("rate")
        elif words[0] == "phase":
            self._counts = self._phase(words[1])
            say("phase", at=time.time())
        elif words[0] == "status":
            report, first = self._report, {kind: count.first_answer for kind, count in self._counts.items()}
            sums = {"sent": report.sent, "answered": report.answered, "failed": len(report.failures)}
            answers = {kind: count.answers for kind, count in self._counts.items()}
            say("status", **sums, first_answer=first, answers=answers)
        elif words[0] == "await":
            self._start(self._await(int(words[1]), float(words[2]), words[3], words[4:]))
        elif words[0] == "stop":
            self._stopped.set()
        else:
            raise KeyError(words[0])

    def _phase(self, name: str) -> dict[Kind, Count]:
        return self._report.phases.setdefault(name, {"kept": Count(), "new": Count()})


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.http_load", description="HTTP requests, each counted.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, default=80)
    parser.add_argument("--kept", type=int, default=10, help="number of kept connections (10)")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds until a request has failed (3)")
    parser.add_argument("--request", action="append", metavar="HOST/PATH", help="sent in turn (ADDRESS/)")
    options = parser.parse_args()
    try:
        asyncio.run(_run(options))
    except OSError as error:
        say("error", problem=str(error))
        return 1
    return 0


async def _run(options: argparse.Namespace) -> None:
    requests = options.request or [f"{options.address}/"]
    await HttpLoad((options.address, options.port), options.kept, options.timeout, requests).run()


if __name__ == "__main__":
    sys.exit(main())
