"""Features of ``l7lb`` with real clients and web servers."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.web_path.balancers import Settings, await_that, l7lb
from lab.web_path.origins import nginx_server
from lab.web_path.path import CLIENT, ORIGINS, PORT, WebPath
from nfagent.control import Control
from tests.l7lb.conftest import origin

pytestmark = pytest.mark.namespaces

_SIZE = 1_000_000
_TLS_CLIENT = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
target, port, server = sys.argv[1:]
with socket.create_connection((target, int(port)), timeout=20) as bare:
    with context.wrap_socket(bare, server_hostname=server or None) as connection:
        connection.sendall(b"GET /bytes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[WebPath]:
    """Return a path on which each test starts its programs."""
    with WebPath() as path:
        yield path


@pytest.fixture
def path(hosts: WebPath, directory: Path) -> Iterator[WebPath]:
    """Start the checking servers; each test starts its load balancer."""
    with origin(hosts, directory):
        yield hosts


def _curl(path: WebPath, *arguments: str, size: int = 5) -> str:
    url = f"http://{path.target}/bytes?seed=1&size={size}"
    command = ("curl", "-sS", "--fail", "--max-time", "20", "--noproxy", "*", "-o", "/dev/null")
    return path.run(CLIENT, *command, *arguments, url)


def test_a_cookie_keeps_a_browser_at_its_server(path: WebPath, directory: Path) -> None:
    settings = Settings(pool={"sticky": {"cookie": "SRV"}}, listener={"add_to_answers": ["X-Served-By: l7lb"]})
    show = ("-w", "%header{x-origin} %header{x-served-by} %header{set-cookie} %{size_download}")
    with l7lb(path, directory, ORIGINS, settings=settings):
        found: Counter[str] = Counter()
        for number in range(6):
            jar = str(directory / f"cookies-{number}")
            server, by, cookie, *_, size = _curl(path, "-c", jar, *show, size=_SIZE).split()
            assert (by, size) == ("l7lb", str(_SIZE))
            assert cookie.startswith("SRV=")
            for _ in range(2):
                assert _curl(path, "-b", jar, *show, size=_SIZE).split() == [server, "l7lb", str(_SIZE)]
            found[server] += 1
        assert found == {each.address: 2 for each in ORIGINS}


def test_each_request_gets_a_line_in_the_log_and_counts(path: WebPath, directory: Path) -> None:
    log = directory / "access.json"
    with l7lb(path, directory, ORIGINS, settings=Settings(top={"log": {"path": str(log)}})) as program:
        for size in (5, _SIZE):
            _curl(path, size=size)
        await_that(lambda: log.exists() and log.read_text().count("\n") == 2, program, directory / "l7lb.log")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["bytes_out"] > size for line, size in zip(lines, (5, _SIZE), strict=True)] == [True, True]
        common = {
            "listener": "ipv4",
            "route": "all",
            "pool": "ipv4",
            "method": "GET",
            "path": "/bytes",
            "host": path.target,
        }
        assert all(line.items() >= (common | {"status": 200, "end": "done"}).items() for line in lines)
        counters = Control(directory / "l7lb.sock").ask("counters")
        assert counters['route_answers{listener="ipv4",route="all",class="2xx"}'] == 2
        assert counters['route_duration_seconds_count{listener="ipv4",route="all"}'] == 2


@pytest.mark.parametrize("version", [1, 2])
def test_addresses_pass_from_curl_to_nginx_by_the_proxy_protocol(hosts: WebPath, directory: Path, version: int) -> None:
    listen = f"listen {PORT} proxy_protocol; listen [::]:{PORT} proxy_protocol;"
    answer = 'return 200 "$proxy_protocol_addr $http_x_forwarded_for ";'
    settings = Settings(listener={"proxy_protocol": True, "forwarded_for": True}, pool={"proxy_protocol": version})
    with (
        nginx_server(hosts, directory, f"server {{ {listen} {answer} }}"),
        l7lb(hosts, directory, ORIGINS, settings=settings),
    ):
        url = f"http://{hosts.target}/"
        command = ("curl", "-sS", "--fail", "--max-time", "20", "--noproxy", "*")
        said = hosts.run(CLIENT, *command, "--haproxy-protocol", url, url)
        assert said.split() == ["10.1.0.1"] * 2 * 2
        refused = hosts.run(CLIENT, *command, url, check=False)
        assert "reset by peer" in refused


def test_tls_passes_to_the_server_that_the_client_names(hosts: WebPath, directory: Path) -> None:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=example.org",
         "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True,
    )  # fmt: skip
    listen = f"listen {PORT} ssl; listen [::]:{PORT} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
    routes = [{"name": each.name, "sni": [f"*.{each.name}.org"], "pool": f"ipv4-{each.name}"} for each in ORIGINS]
    routes.append({"name": "others", "pool": "ipv4-two"})
    settings = Settings(listener={"mode": "tls-passthrough", "routes": routes})
    answer = 'return 200 "$server_addr [$ssl_server_name] ";'
    with (
        nginx_server(hosts, directory, f"server {{ {listen} {answer} }}"),
        l7lb(hosts, directory, ORIGINS, settings=settings),
    ):
        for each in ORIGINS:
            name = f"www.{each.name}.org"
            url = f"https://{name}:{PORT}/"
            resolve = ("--resolve", f"{name}:{PORT}:{hosts.target}")
            curl = ("curl", "-ksS", "--fail", "--max-time", "20", "--noproxy", "*")
            assert hosts.run(CLIENT, *curl, *resolve, url, url).split() == [each.address, f"[{name}]"] * 2
            end = ("-connect", f"{hosts.target}:{PORT}", "-servername", name)
            assert "CN = example.org" in hosts.run(CLIENT, "sh", "-c", f"openssl s_client {' '.join(end)} </dev/null")
        client = (sys.executable, "-c", _TLS_CLIENT, hosts.target, str(PORT))
        assert hosts.run(CLIENT, *client, "").split() == [ORIGINS[1].address, "[]"]
        assert hosts.run(CLIENT, *client, "a.three.org").split() == [ORIGINS[2].address, "[a.three.org]"]
