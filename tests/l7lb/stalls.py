"""``python -m tests.l7lb.stalls``: transfers of which the client reads nothing until it is told to.

Arguments: address, port, number of connections, ``download`` or ``upload NAME``. It prints ``ready`` when all requests
have been sent as far as the network takes them, waits for a line of input, and prints how many transfers were right.
"""

import hashlib
import json
import sys

from tests.l7lb.bodies import LARGEST, body
from tests.l7lb.http_client import Connection, Settings

_RECEIVE_BUFFER = 4096


def _request(seed: int, name: str | None) -> list[bytes]:
    if name is None:
        return [f"GET /bytes?seed={seed}&size={LARGEST} HTTP/1.1\r\nHost: web\r\n\r\n".encode()]
    head = f"POST /later?name={name} HTTP/1.1\r\nHost: web\r\nContent-Length: {LARGEST}\r\n\r\n"
    return [head.encode(), body(seed, LARGEST)]


def _is_right(connection: Connection, seed: int, name: str | None) -> bool:
    answer, data = connection.answer(), body(seed, LARGEST)
    if name is None:
        return answer.body == data
    told = json.loads(answer.body)
    return (told["length"], told["sha256"]) == (LARGEST, hashlib.sha256(data).hexdigest())


def main() -> None:
    """The command."""
    target, count = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
    name = sys.argv[5] if sys.argv[4] == "upload" else None
    connections = [Connection(target, Settings(receive_buffer=_RECEIVE_BUFFER)) for _ in range(count)]
    for seed, connection in enumerate(connections):
        connection.send(_request(seed, name))
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(_is_right(connection, seed, name) for seed, connection in enumerate(connections)), flush=True)


if __name__ == "__main__":
    main()
