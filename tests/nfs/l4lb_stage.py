"""A client, a load balancer and two web servers on one bridge, each in a network namespace.

test_l4lb.py runs it inside namespaces of its own.
It prints the client's observations as one JSON object. Each server answers with its name and the client's address.
"""

import contextlib
import http.client
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.namespaces import add, entered, ip_batch, private_run
from tests.nfs.awaiting import await_that
from tests.nfs.l4lb_tunnels import NETWORK, end_tunnel, inner_mac

SERVERS = {"one": "10.0.0.11", "two": "10.0.0.12"}
IPV6 = {"one": "fd00::11", "two": "fd00::12"}
TUNNELS = ("ipip", "gue", "vxlan")
VIP = "10.1.0.200"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class Answer(http.server.BaseHTTPRequestHandler):
    """An answer with the server's name and the client's address."""

    name = ""
    proxied = False
    broken = False
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.client = self.client_address[0].removeprefix("::ffff:")
        if self.proxied and self.rfile.peek(1)[:1] == b"\r":  # pyright: ignore[reportAttributeAccessIssue]
            header = self.rfile.read(16)
            body = self.rfile.read(int.from_bytes(header[14:16], "big"))
            if header[:12] == SIGNATURE:
                self.client = socket.inet_ntoa(body[:4])

    def do_GET(self) -> None:
        body = b"x" * 200_000 if self.path == "/large" else f"{self.name} {self.client}".encode()
        self.send_response(503 if self.broken and self.path == "/healthy" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = str(len(self.rfile.read(int(self.headers["Content-Length"])))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


def network() -> None:
    """Put `client` into 10.1.0.0/24 and the servers into 10.0.0.0/24; the load balancer's kernel gets no address."""
    add(["client", "balancer", *SERVERS])
    lines = ["link add bridge type bridge", "link set bridge up"]
    for index, name in enumerate(["client", "balancer", *SERVERS]):
        lines += [
            f"link add to-{name} type veth peer name eth0 address 02:00:00:00:01:0{index} netns {name}",
            f"link set to-{name} master bridge up",
        ]
    ip_batch(lines)
    with entered("balancer"):
        Path("/proc/sys/net/ipv6/conf/eth0/disable_ipv6").write_text("1")
        ip_batch(["link set eth0 up"])
    with entered("client"):
        ip_batch(
            [
                "link set lo up",
                "addr add 10.1.0.100/24 dev eth0",
                "link set eth0 up gso_max_segs 1",
                "route add 10.0.0.0/24 via 10.1.0.2",
            ]
        )
    for name, address in SERVERS.items():
        with entered(name):
            ip_batch(
                [
                    "link set lo up",
                    f"addr add {address}/24 dev eth0",
                    "link set eth0 up gso_max_segs 1",
                    "route add 10.1.0.0/24 via 10.0.0.2",
                ]
            )


def tunnels(mode: str, directory: Path) -> None:
    """Give the servers the VIP and a tunnel's end, so that they answer the client directly."""
    addresses = IPV6 if mode == "vxlan-ipv6" else SERVERS
    for position, (name, address) in enumerate(addresses.items()):
        with entered(name):
            ip_batch([f"addr add {IPV6[name]}/64 dev eth0 nodad"])
        end_tunnel(mode, name, position, address, directory)
        with entered(name):
            device = "physical" if mode == "vxlan-ovs" else "eth0"
            ip_batch([f"addr add {VIP}/32 dev lo", f"route replace 10.1.0.0/24 dev {device}"])
            # The server must not answer for the VIP, nor use it as the source of its own ARP requests.
            settings = Path("/proc/sys/net/ipv4/conf/all")
            (settings / "arp_ignore").write_text("1")
            (settings / "arp_announce").write_text("2")
    with entered("client"):
        ip_batch(["route replace 10.0.0.0/24 dev eth0"])


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6  # health checks come over IPv6 if the tunnel does

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the resets with which health checks end."""
        del request, client_address


def serve(name: str, address: str, proxied: bool) -> type[Answer]:
    handler = type(f"Answer{name}", (Answer,), {"name": name, "proxied": proxied})
    with entered(name):
        server = Server(("::", 80), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return handler


def configuration(mode: str) -> dict[str, Any]:
    tunnel = mode.partition("-")[0]
    addresses = IPV6 if mode == "vxlan-ipv6" else SERVERS
    backends = [{"name": name, "address": address} for name, address in addresses.items()]
    health = {"kind": "http", "path": "/healthy", "interval": "1s", "timeout": "1s", "rise": 1, "fall": 2}
    vip = {
        "name": "web",
        "address": VIP,
        "port": 80,
        "protocol": "tcp",
        "algorithm": "round-robin",
        "health": health,
        "mode": tunnel if tunnel in TUNNELS else "nat",
        "snat": mode in ("snat", "proxy"),
        "proxy_protocol": mode == "proxy",
    }
    if tunnel == "vxlan":
        vip["vni"] = NETWORK
        backends = [each | {"inner_mac": inner_mac(position)} for position, each in enumerate(backends)]
    own = ["10.0.0.2/24", "10.1.0.2/24", "fd00::2/64"]
    return {"interfaces": [{"addresses": own}], "vips": [vip | {"backends": backends}]}


class Control:
    """The load balancer's control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, **request: object) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["ok"]

    def health(self) -> dict[str, str]:
        return {each["name"]: each["health"] for each in self.ask(do="l4lb.backends")["backends"]}


@contextlib.contextmanager
def balancer(nf: str, folder: Path, wanted: dict[str, Any], *options: str) -> Iterator[Control]:
    config, control = folder / "l4lb.json", folder / "control"
    config.write_text(json.dumps(wanted))
    command = [
        nf,
        "run",
        "l4lb",
        "--config",
        str(config),
        "--port",
        "eth0",
        "--control",
        str(control),
        *options,
    ]
    with entered("balancer"):
        process = subprocess.Popen(command)
    try:
        await_that(control.exists)
        yield Control(control)
    finally:
        process.terminate()
        process.wait(timeout=10)


@contextlib.contextmanager
def told(control: Control) -> Iterator[None]:
    """Print the load balancer's view when the test fails."""
    try:
        yield
    except BaseException:
        for verb in ("counters", "l4lb.backends", "status"):
            print(json.dumps(control.ask(do=verb)), file=sys.stderr)
        raise


def get(path: str = "/") -> bytes:
    """Request a page over a new connection."""
    with socket.create_connection((VIP, 80), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n".encode())
        return connection.makefile("rb").read().partition(b"\r\n\r\n")[2]


def post(size: int) -> int:
    """Send a body in packets as large as the path allows; return the number of bytes that the server received."""
    with contextlib.closing(http.client.HTTPConnection(VIP, timeout=10)) as connection:
        connection.request("POST", "/", body=bytes(size))
        return int(connection.getresponse().read())


def ask_again(connection: http.client.HTTPConnection) -> str:
    """Return which servers answer on a connection that stays open."""
    connection.request("GET", "/")
    return connection.getresponse().read().decode().split()[0]


def names(count: int) -> Counter[str]:
    return Counter(get().decode().split()[0] for _ in range(count))


def main() -> None:
    nf, mode, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    private_run()
    network()
    if mode.startswith(TUNNELS):
        tunnels(mode, folder)
    handlers = {name: serve(name, address, mode == "proxy") for name, address in SERVERS.items()}
    with balancer(nf, folder, configuration(mode), "--backend", "packet") as control, entered("client"), told(control):
        await_that(lambda: set(control.health().values()) == {"up"})
        result: dict[str, Any] = {"all": names(20), "seen_as": get().decode().split()[1], "large": len(get("/large"))}
        result["posted"] = post(200_000)
        with contextlib.closing(http.client.HTTPConnection(VIP, timeout=10)) as kept:
            result["drained"] = owner = ask_again(kept)
            control.ask(do="l4lb.drain", vip="web", backend=owner)
            result["while_drained"] = names(10)
            result["kept"] = ask_again(kept)
        control.ask(do="l4lb.drain", vip="web", backend=owner, on=False)
        handlers["one"].broken = True
        await_that(lambda: control.health()["one"] == "down")
        result["while_down"] = names(10)
        handlers["one"].broken = False
        await_that(lambda: control.health()["one"] == "up")
        result["again"] = names(10)
        result["full"] = control.ask(do="l4lb.full")["full"]
        result["dropped"] = control.ask(do="status")["packets_dropped"]
    print(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # the servers' threads never end


if __name__ == "__main__":
    main()
