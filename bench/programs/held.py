"""Latency of nfagent's answers while clients hold connections: idle ones, half-sent heads and half-sent bodies.

The baseline is the same agent with the same requests between. Half of the requests use kept connections, half
a new connection each.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nfagent.api.connections import raise_file_limit, room
from programs.agent import Agent, Switches, p99

_HOST = "127.0.0.1"
_TOKEN = "a-token-of-the-bench"
_PATH = "/api/v1/instances?limit=20"
# Fewer than wait for nfagent to accept them: the kernel drops the SYN of a further one, and repeats it a second later.
_AT_A_TIME = 100
_HEADERS = {"Authorization": f"Bearer {_TOKEN}"}
_HELD = (
    b"",
    b"GET /api/v1/instances HTTP/1.1\r\nHost: x\r\nX-",
    b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    parser.add_argument("--held", type=int, default=10_000, help="connections")
    options = parser.parse_args()
    rounds, count = (1, 1000) if options.quick else (4, 2500)
    raise_file_limit()
    # As many as nfagent holds on each of its two listeners: beyond that, it closes some to make room.
    count_held = min(options.held, room(2) - _AT_A_TIME)
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory(prefix="nfagent-") as name, Switches(Path(name)):
        port = _free_port()
        with Agent(Path(name), _api(Path(name), port)) as agent:
            for number in range(20):
                agent.create(f"nf{number}")
            agent.wait(lambda: agent.count("active") == 20)
            _ask(port, count // 4)
            empty_mb, held_mb, left = agent.rss_mb(), 0.0, 0
            for _ in range(rounds):
                alone += _ask(port, count)
                with _holding(port, count_held) as held:
                    beside += _ask(port, count)
                    held_mb, left = agent.rss_mb(), sum(map(_is_open, held))
    figures = {
        "held": count_held,
        "requests": len(beside),
        "p50_ms": round(statistics.median(alone), 2),
        "held_p50_ms": round(statistics.median(beside), 2),
        "p99_ms": p99(alone),
        "held_p99_ms": p99(beside),
        "ratio": round(p99(beside) / p99(alone), 2),
        "still_open": left,
        "rss_mb": empty_mb,
        "held_rss_mb": held_mb,
        "load": os.getloadavg()[0],
    }
    print(json.dumps(figures))


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listener:
        return listener.getsockname()[1]


def _api(directory: Path, port: int) -> str:
    tokens = directory / "tokens"
    tokens.write_text(f"bench admin {_TOKEN}\n")
    tokens.chmod(0o600)
    return f'listen = ["unix:{directory}/nfagent.sock", "tcp:{_HOST}:{port}"]\ntokens = "{tokens}"'


@contextmanager
def _holding(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        held = []
        for number in range(count):
            made = stack.enter_context(socket.create_connection((_HOST, port), timeout=30))
            made.sendall(_HELD[number % len(_HELD)])
            held.append(made)
            if len(held) % _AT_A_TIME == 0:
                # A connection that is answered was accepted after all these.
                _ask(port, 1)
        yield held


def _is_open(held: socket.socket) -> bool:
    held.setblocking(False)
    try:
        held.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False  # it ended, or 408 came


def _ask(port: int, count: int) -> list[float]:
    """Send requests one after another; return the durations in ms."""
    times = []
    kept = http.client.HTTPConnection(_HOST, port, timeout=60)
    for number in range(count):
        begun = time.perf_counter()
        client = kept if number % 2 else http.client.HTTPConnection(_HOST, port, timeout=60)
        client.request("GET", _PATH, headers=_HEADERS)
        answer = client.getresponse()
        answer.read()
        times.append((time.perf_counter() - begun) * 1000)
        assert answer.status == 200, answer.status
        if client is not kept:
            client.close()
    kept.close()
    return times


if __name__ == "__main__":
    main()
