"""``python -m tests.l7lb.latencies ADDRESS PORT``: the times of small requests.

For each line of input, a number, it sends as many requests, ten on each connection, and prints the seconds of each as
JSON. Those that open a connection count from the first SYN.
"""

import json
import sys
import time

from tests.l7lb.bodies import body
from tests.l7lb.http_client import Connection, Settings

_PER_CONNECTION = 10
_SIZE = 1000


def _times(target: tuple[str, int], requests: int) -> list[float]:
    times: list[float] = []
    while len(times) < requests:
        begin = time.monotonic()
        with Connection(target, Settings()) as connection:
            for seed in range(_PER_CONNECTION):
                connection.send([f"GET /bytes?seed={seed}&size={_SIZE} HTTP/1.1\r\nHost: web\r\n\r\n".encode()])
                if connection.answer().body != body(seed, _SIZE):
                    raise ValueError(f"the answer to request {len(times)} is wrong")
                times.append(time.monotonic() - begin)
                begin = time.monotonic()
    return times


def main() -> None:
    """The command."""
    target = (sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(_times(target, int(line))), flush=True)


if __name__ == "__main__":
    main()
