"""``python -m tests.l7lb.transfers``: HTTP transfers of random kinds and sizes, each checked byte by byte.

Reads one `Plan` per line, as JSON; answers each with a `Report`, as JSON.
"""

import hashlib
import json
import math
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from lab.web_path.balancers import prefix
from lab.web_path.path import ORIGINS
from tests.l7lb.bodies import LARGEST, body, chunked
from tests.l7lb.http_client import Answer, Connection, HungError, Settings, WrongError

PAUSE_S = 30.0
_SHOWN = 10


@dataclass(frozen=True)
class Plan:
    """A number of requests.

    Args:
        host: the VIP.
        port: of the VIP.
        seed: of all choices; with several connections, the order of events still differs.
        requests: how many.
        connections: how many at a time.
        largest: bytes of the largest body.
        split: the share of requests whose first segment ends early, most of them inside the head.
        stalls: whether clients and servers stop reading now and then, until another request has been answered.
        receive_buffer: as in `Settings`; so are the others.
    """

    host: str
    port: int
    seed: int
    requests: int
    connections: int = 8
    largest: int = LARGEST
    split: float = 0.3
    stalls: bool = False
    receive_buffer: int = 0
    delayed_acks: bool = False
    timeout_s: float = 60.0


@dataclass
class Report:
    """The outcomes of a plan's requests."""

    requests: int = 0
    bytes: int = 0
    corrupt: int = 0
    hung: int = 0
    failed: int = 0
    longest_pause_s: float = 0.0
    """The longest time in which a connection made no progress."""
    pauses: int = 0
    """Connections that made no progress for `PAUSE_S`."""
    examples: list[str] = field(default_factory=list)
    """Descriptions of the first failures."""


@dataclass
class Exchange:
    """A request, and the check of its answer."""

    what: str
    request: bytes
    check: Callable[[Answer], None]
    size: int
    go: str = ""
    """The name for the server to wait for, if it is to stop reading."""


def _same(expected: bytes, found: bytes, what: str) -> None:
    """Compare two bodies.

    Raises:
        WrongError: they differ; says where.
    """
    if expected == found:
        return
    differing = next((at for at, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    at = min(len(expected), len(found)) if differing is None else differing
    raise WrongError(f"{what}: {len(found)} bytes of {len(expected)}, which differ from byte {at} on")


class Worker:
    """One connection after the other, until its share of the requests is done."""

    def __init__(self, plan: Plan, index: int, requests: int) -> None:
        self._plan = plan
        self._choose = random.Random(f"{plan.seed} {index}")
        self._requests = requests
        self._index = index
        self._settings = Settings(plan.receive_buffer, plan.delayed_acks, plan.timeout_s)
        self.report = Report()

    def run(self) -> None:
        """Send all requests."""
        while self.report.requests < self._requests:
            before = self.report.requests
            batch: list[Exchange] = []
            try:
                with Connection((self._plan.host, self._plan.port), self._settings) as connection:
                    for _ in range(self._choose.randint(1, 12)):
                        left = self._requests - self.report.requests
                        batch = [self._exchange() for _ in range(min(self._choose.choice((1, 1, 1, 2, 5)), left))]
                        self._perform(connection, batch)
                    connection.finish()
                    self._note(connection)
            except (HungError, WrongError, OSError, ValueError, KeyError) as error:
                self._failure(error, batch)
            # Even a connection that failed at once makes progress.
            self.report.requests = max(self.report.requests, before + 1)

    def _note(self, connection: Connection) -> None:
        """Take over the connection's longest pause."""
        pause = connection.longest_pause_s
        self.report.pauses += pause >= PAUSE_S
        self.report.longest_pause_s = max(self.report.longest_pause_s, pause)

    def _failure(self, error: Exception, batch: list[Exchange]) -> None:
        self.report.failed += 1
        self.report.hung += isinstance(error, HungError)
        self.report.corrupt += isinstance(error, WrongError)
        if len(self.report.examples) < _SHOWN:
            kinds = ", ".join(each.what for each in batch)
            self.report.examples.append(f"worker {self._index}, request {self.report.requests}: {error!r} in [{kinds}]")

    def _perform(self, connection: Connection, batch: list[Exchange]) -> None:
        """Pipeline these requests; check their answers in order."""
        for each in batch:
            connection.send(self._pieces(each.request))
        waiting = [each.go for each in batch if each.go]
        if waiting or (self._plan.stalls and self._choose.random() < 0.3):
            # Neither end of the first connection reads until this one has been answered.
            with Connection((self._plan.host, self._plan.port), self._settings) as other:
                for name in waiting or ["none"]:
                    other.send([f"GET /go?name={name} HTTP/1.1\r\nHost: web\r\n\r\n".encode()])
                    _same(b"gone\n", other.answer().body, "answer to /go")
        for each in batch:
            answer = connection.answer()
            if answer.status != 200:
                raise WrongError(f"{each.what}: status {answer.status}")
            each.check(answer)
            self.report.requests += 1
            self.report.bytes += each.size

    def _pieces(self, request: bytes) -> list[bytes]:
        """Split some requests early, so that segments end inside heads."""
        if self._choose.random() >= self._plan.split:
            return [request]
        at = self._choose.randrange(1, min(len(request), 400))
        return [request[:at], request[at:]]

    def _exchange(self) -> Exchange:
        choose = self._choose
        seed, size = choose.randrange(1 << 30), round(math.exp(choose.uniform(0, math.log(self._plan.largest))))
        data = body(seed, size)
        padding = f"X-Padding: {'p' * choose.randrange(3000)}\r\n" if choose.random() < 0.2 else ""
        # Most requests of a connection go to another server than the one before them.
        server = choose.choice(("", *map(prefix, ORIGINS)))
        kind = choose.choice(("bytes", "bytes", "chunks", "sha256", "sha256-chunked", "echo", "echo-chunked"))
        if kind in ("bytes", "chunks"):
            request = f"GET {server}/{kind}?seed={seed}&size={size} HTTP/1.1\r\nHost: web\r\n{padding}\r\n".encode()
            return Exchange(f"{kind} {size}", request, lambda answer: _check_download(answer, data), size)
        path, _, in_chunks = kind.partition("-")
        target, go = f"{server}/{path}", ""
        if self._plan.stalls and path == "sha256" and choose.random() < 0.3:
            go = f"{self._plan.seed}-{self._index}-{choose.randrange(1 << 60)}"
            target = f"{server}/later?name={go}"
        framing = "Transfer-Encoding: chunked" if in_chunks else f"Content-Length: {size}"
        head = f"POST {target} HTTP/1.1\r\nHost: web\r\n{padding}{framing}\r\n\r\n".encode()
        trailers = {"X-Trailer": str(seed)} if in_chunks else {}
        sent = chunked(data, seed, trailers) if in_chunks else data
        check = _check_echo if path == "echo" else _check_upload
        return Exchange(f"{kind} {size}", head + sent, lambda answer: check(answer, data), size, go)


def _check_download(answer: Answer, data: bytes) -> None:
    _same(data, answer.body, "download")
    told = answer.trailers.get("x-sha256", hashlib.sha256(data).hexdigest())
    _same(hashlib.sha256(data).hexdigest().encode(), told.encode(), "digest in a trailer")


def _check_upload(answer: Answer, data: bytes) -> None:
    told = json.loads(answer.body)
    if (told["length"], told["sha256"]) != (len(data), hashlib.sha256(data).hexdigest()):
        raise WrongError(f"upload of {len(data)} bytes: the server received {told}")


def _check_echo(answer: Answer, data: bytes) -> None:
    _same(data, answer.body, "echo")


def execute(plan: Plan) -> Report:
    """Send all requests of a plan."""
    shares = [
        plan.requests // plan.connections + (index < plan.requests % plan.connections)
        for index in range(plan.connections)
    ]
    workers = [Worker(plan, index, share) for index, share in enumerate(shares)]
    threads = [threading.Thread(target=each.run) for each in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = Report()
    for each in workers:
        total.requests += each.report.requests
        total.bytes += each.report.bytes
        total.corrupt += each.report.corrupt
        total.hung += each.report.hung
        total.failed += each.report.failed
        total.pauses += each.report.pauses
        total.longest_pause_s = max(total.longest_pause_s, each.report.longest_pause_s)
        total.examples += each.report.examples
    return total


def main() -> None:
    """Execute the plans of standard input."""
    for line in sys.stdin:
        print(json.dumps(asdict(execute(Plan(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
