"""``python -m lab.l7.asking ADDRESS HOST/PATH...``: sends requests over a single connection, one after the other.

Prints a JSON object for each answer: its status, its Location, and the first word of its body.
"""

import http.client
import json
import sys

_TIMEOUT_S = 10.0


def main() -> int:
    """The command."""
    connection = http.client.HTTPConnection(sys.argv[1], timeout=_TIMEOUT_S)
    connection.connect()
    local = connection.sock.getsockname()
    request = "no request was sent"
    try:
        for request in sys.argv[2:]:
            host, _, path = request.partition("/")
            connection.request("GET", f"/{path}", headers={"Host": host})
            answer = connection.getresponse()
            word = (answer.read().split(maxsplit=1) or [b""])[0].decode(errors="replace")
            # http.client opens another connection without a word if the server closed this one.
            same = connection.sock is not None and connection.sock.getsockname() == local
            told = {"status": answer.status, "location": answer.getheader("Location"), "word": word, "same": same}
            print(json.dumps(told), flush=True)
    except (OSError, http.client.HTTPException) as error:
        print(f"{request}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
