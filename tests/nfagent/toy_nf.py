"""A network function that touches no packet and speaks the control protocol of nfs/README.md.

Its configuration may hold ``refuse``: it then refuses to be configured so, or ``slow_s``: it is ready only then.
"""

import argparse
import json
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Toy:
    """The instance."""

    def __init__(self, config: dict[str, Any], ports: list[str], *, hold: bool) -> None:
        self.config = config
        self.ports = ports
        self.mode = "holding" if hold else "running"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is answered."""
        verb = request.get("do")
        if verb == "status":
            return {"ok": {"kind": "toy", "mode": self.mode, "ports": [{"name": name} for name in self.ports]}}
        if verb == "config":
            return {"ok": {"config": self.config}}
        if verb == "configure":
            if "refuse" in request["config"]:
                return {"error": {"code": "configuration", "detail": "refuse: it was asked to"}}
            self.config = request["config"]
            return {"ok": {}}
        return {"error": {"code": "verb-unknown", "detail": f"no verb {verb!r}"}}


class Server(socketserver.ThreadingUnixStreamServer):
    """The control socket."""

    daemon_threads = True

    def __init__(self, path: str, toy: Toy) -> None:
        self.toy = toy
        super().__init__(path, Handler)


class Handler(socketserver.StreamRequestHandler):
    """One client."""

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        for line in self.rfile:
            request = json.loads(line)
            if request.get("do") == "stop":
                self.wfile.write(b'{"ok": {}}\n')
                threading.Thread(target=self.server.shutdown).start()
                return
            self.wfile.write(json.dumps(self.server.toy.answer(request)).encode() + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", action="append", default=[])
    parser.add_argument("--control", required=True)
    parser.add_argument("--hold", action="store_true")
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    if config.get("refuse") == "start":
        print("toy: refuse: it was asked to", file=sys.stderr)
        return 2
    time.sleep(config.get("slow_s", 0))
    with Server(options.control, Toy(config, options.port, hold=options.hold)) as server:
        server.serve_forever(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
