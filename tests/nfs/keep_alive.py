"""Keep HTTP connections open inside a host, and use them in turn until the input ends.

Prints which servers answered each connection, and the failures.
"""

import http.client
import json
import select
import sys


def main() -> None:
    host, count = sys.argv[1], int(sys.argv[2])
    connections = [http.client.HTTPConnection(host, 80, timeout=20) for _ in range(count)]
    answered: list[set[str]] = [set() for _ in connections]
    requests, failed = 0, []
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for index, connection in enumerate(connections):
            try:
                connection.request("GET", f"/{requests}")
                answered[index].add(connection.getresponse().read().decode().strip())
            except (OSError, http.client.HTTPException) as error:
                failed.append((index, repr(error)))
                connection.close()
            requests += 1
    print(json.dumps({"requests": requests, "failed": failed, "answered": [sorted(each) for each in answered]}))


main()
