"""oneswitchd's REST interface alone: a real HTTP server on a unix socket, with ports in a dictionary."""

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Answer = tuple[int, Any]


class FakeOneswitchd:
    """Answers the requests of docs/architecture.md and records them.

    ``overrides`` maps ``"METHOD /path"`` to a function from the body of the request to (HTTP status, JSON body); bytes
    as the body are sent as they are.
    """

    def __init__(self, socket: Path, status: dict[str, Any] | None = None) -> None:
        self.socket = socket
        self.api = f"unix:{socket}"
        self.status = status or make_status()
        self.ports: dict[int, dict[str, Any]] = {}
        self.levels = {"default": "info"}
        self.asked: list[tuple[str, str, Any]] = []
        self.overrides: dict[str, Callable[[Any], Answer]] = {}
        self._server = _Server(str(socket), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> "FakeOneswitchd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, number: int, name: str, switch: str, interface: str, **more: Any) -> dict[str, Any]:
        """Add a port without a request."""
        port = {
            "number": number,
            "name": name,
            "switch": switch,
            "interface": interface,
            "flow_id": number,
            "state": "up",
            "reason": None,
            "config": [],
            "mac": f"02:00:00:00:00:{number & 255:02x}",
            "owner": None,
            "move": None,
        }
        self.ports[number] = port | more
        return self.ports[number]

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Answer a request."""
        self.asked.append((method, path, body))
        override = self.overrides.get(f"{method} {path}")
        if override:
            return override(body)
        parts = path.strip("/").split("/")
        if parts[:2] == ["v1", "status"]:
            return 200, self.status
        if parts == ["v1", "audit"]:
            return 200, [
                audited(each["name"], bridge) for each in self.status["switches"] for bridge in ("virt", "edge")
            ]
        if parts[:2] == ["v1", "log"]:
            self.levels.update(body or {})
            return 200, self.levels
        if parts[:2] == ["v1", "ports"]:
            return self._ports(method, parts[2:], body)
        return problem(404, "malformed", f"no {path} here")

    def _ports(self, method: str, rest: list[str], body: Any) -> Answer:
        if not rest:
            return (200, list(self.ports.values())) if method == "GET" else self._create(body)
        port = self.ports.get(int(rest[0]))
        if port is None:
            return problem(404, "port-unknown", f"there is no port {rest[0]}")
        body = body or {}
        takes = (method, rest[1:]) in [("DELETE", []), ("PUT", ["owner"]), ("POST", ["move"])]
        forced = body.get("force", False) and method != "POST"
        if takes and not forced and port["owner"] not in (None, body.get("owner")):
            return problem(409, "port-owned", f"port {rest[0]} belongs to {port['owner']}")
        if rest[1:] == ["owner"]:
            port["owner"] = body.get("owner")
            return 200, port
        if rest[1:] == ["executor"]:
            executes_at = port["switch"] if body["executor"] == "home" else body["executor"]
            port.update(executor=body["executor"], executes_at=executes_at)
            return 200, port
        if rest[1:]:
            return self._move(method, port, rest[2:] == ["continue"], body)
        if method == "DELETE":
            del self.ports[port["number"]]
            return 204, None
        return 200, port

    def _create(self, body: Any) -> Answer:
        number = body.get("number") or min(set(range(1, 100)) - set(self.ports))
        if number in self.ports:
            return problem(409, "port-number-taken", f"port {number} exists")
        name = body.get("name", body["interface"])
        return 201, self.add(number, name, body["switch"], body["interface"], owner=body.get("owner"))

    def _move(self, method: str, port: dict[str, Any], goes_on: bool, body: Any) -> Answer:
        if method == "DELETE":
            port["move"] = None
            return 200, port
        target = port["move"] if goes_on else body
        if target is None:
            return problem(409, "no-move", f"port {port['number']} is not moving")
        if body["until"] == "done":
            port.update(switch=target["switch"], interface=target["interface"], move=None)
        else:
            port["move"] = {"switch": target["switch"], "interface": target["interface"], "stage": body["until"]}
        return 200, port


def problem(status: int, code: str, detail: str) -> Answer:
    """Return a problem document (RFC 9457)."""
    return status, {"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail}


def audited(switch: str, bridge: str) -> dict[str, Any]:
    """The audit of a bridge where nothing differs."""
    return {"switch": switch, "bridge": bridge, "state": "up", "audited": True, "found": None}


def make_status(switches: tuple[str, ...] = ("hypervisor", "snic0"), **more: Any) -> dict[str, Any]:
    """Return a Status with everything up; the first switch is the hub."""
    return {
        "version": "0.1.0",
        "datapath_id": "0000000000000001",
        "uptime_s": 61,
        "listen": ["ptcp:6653:127.0.0.1"],
        "api": "unix:/nowhere",
        "controllers": [],
        "switches": [_switch(name, index == 0) for index, name in enumerate(switches)],
        "virtual": {"ports": 2, "flows": 1, "groups": 0, "meters": 0, "executors": list(switches)},
        "refused": 0,
    } | more


def _switch(name: str, hub: bool) -> dict[str, Any]:
    return {
        "name": name,
        "hub": hub,
        "virt": {"target": f"unix:/{name}/virt", "state": "up", "last_error": None},
        "edge": {"target": f"unix:/{name}/edge", "state": "up", "last_error": None},
        "link": None if hub else {"hypervisor": f"pcie-{name}", "local": "pf0hpf", "state": "up"},
        "physical_flows": 1,
        "physical_groups": 0,
        "physical_meters": 0,
        "edge_flows": 5,
        "repairs": 0,
        "misses": None,
    }


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    fake: FakeOneswitchd


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        status, answer = self.server.fake.answer(self.command, self.path, body)
        content = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - names that the base class looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log: pytest shows failures."""
