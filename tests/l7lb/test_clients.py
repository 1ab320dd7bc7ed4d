"""Stock and odd clients through a layer-7 load balancer, to checking, nginx and Apache servers."""

import hashlib
import json
import re
import select
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.web_path.balancers import Running, find, prefix
from lab.web_path.origins import apache_origin, nginx_origin
from lab.web_path.path import CLIENT, ORIGINS, WebPath
from tests.l7lb.bodies import LARGEST, body
from tests.l7lb.conftest import curl, raw_client

pytestmark = pytest.mark.namespaces

_REPORT = Path(__file__).parents[1] / "nfs/wrk_report.lua"
_NO_FAILURE = {"connect": 0, "read": 0, "write": 0, "timeout": 0, "status": 0}
_SIZES = (0, 1, 1448, 65_536, 3_000_000)
_GIGABYTE = 1 << 30
_SAMPLE_S = 0.2
_BUFFERS = 16 << 20
"""A balancer may need this many bytes for a transfer, however long."""


def test_curl_sees_each_request_of_a_connection_routed(served: WebPath) -> None:
    servers = [ORIGINS[number] for number in (0, 1, 2, 0, 2, 1, 1, 0)]
    urls = [f"http://{served.target}{prefix(each)}/bytes?seed=1&size=5" for each in servers]
    outputs = [word for url in urls for word in ("-o", "/dev/null", url)]
    said = curl(served, "--write-out", "%{num_connects} %header{x-origin}\\n", *outputs)
    lines = [line.split() for line in said.splitlines()]
    assert [connects for connects, _ in lines] == ["1", *["0"] * 7]
    assert [address for _, address in lines] == [each.address for each in servers]


def test_connections_go_to_all_servers_in_turn(served: WebPath) -> None:
    url = f"http://{served.target}/bytes?seed=1&size=5"
    said = [curl(served, "-o", "/dev/null", "-w", "%header{x-origin}", url) for _ in range(6)]
    assert Counter(said) == {each.address: 2 for each in ORIGINS}


def test_curl_waits_for_100_continue(served: WebPath, directory: Path) -> None:
    file = directory / "upload"
    file.write_bytes(body(8, LARGEST))
    said = curl(
        served, "-v", "-H", "Expect: 100-continue", "--expect100-timeout", "40", "-T", str(file),
        f"http://{served.target}/sha256",
    )  # fmt: skip
    assert "< HTTP/1.1 100 Continue" in said
    assert hashlib.sha256(body(8, LARGEST)).hexdigest() in said


def test_a_head_request_gets_no_body(served: WebPath) -> None:
    said = curl(served, "--head", f"http://{served.target}/bytes?seed=1&size=4321", f"http://{served.target}/go?name=x")
    assert re.findall(r"(?im)^content-length: (\d+)", said) == ["4321", "5"]


@pytest.mark.parametrize("ipv6", [False, True])
def test_requests_uses_a_session(served: WebPath, ipv6: bool) -> None:
    assert raw_client(served, "session", served.target6 if ipv6 else served.target) == 43


def test_pipelined_requests_are_answered_in_order(served: WebPath) -> None:
    assert raw_client(served, "pipelined") == 50


def test_a_client_that_sends_byte_by_byte_is_served(served: WebPath) -> None:
    assert raw_client(served, "slow") == [True, True]


def test_trailers_pass_both_ways(served: WebPath) -> None:
    seen = raw_client(served, "trailers")
    assert seen == {"sent": True, "sent_trailers": {"x-sum": "a sum"}, "received": True, "received_trailer": True}


def test_a_websocket_is_a_pipe_after_its_upgrade(served: WebPath) -> None:
    assert raw_client(served, "websocket") == [101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", 100]


# ---- stock servers and loads


@pytest.fixture(scope="module")
def files(module_directory: Path) -> Path:
    """Write a file of each size, named after it."""
    folder = module_directory / "files"
    folder.mkdir()
    module_directory.chmod(0o755)
    for size in _SIZES:
        (folder / str(size)).write_bytes((body(size, LARGEST) * 3)[:size])
    return folder


@pytest.fixture(params=["nginx", "apache"])
def stock(request: pytest.FixtureRequest, path: WebPath, directory: Path, files: Path) -> Iterator[WebPath]:
    """Start a stock web server on all addresses."""
    directory.chmod(0o755)
    servers = {"nginx": nginx_origin, "apache": apache_origin}
    with servers[request.param](path, directory, files):
        yield path


def test_files_of_stock_servers_arrive_unchanged(stock: WebPath, files: Path, directory: Path) -> None:
    arguments = [
        word for size in _SIZES for word in ("-o", str(directory / str(size)), f"http://{stock.target}/{size}")
    ]
    curl(stock, *arguments)
    for size in _SIZES:
        assert (directory / str(size)).read_bytes() == (files / str(size)).read_bytes(), size
    part = directory / "part"
    said = curl(stock, "-r", "1000-1999", "-w", "%{http_code}", "-o", str(part), f"http://{stock.target}/65536")
    assert (said, part.read_bytes()) == ("206", (files / "65536").read_bytes()[1000:2000])


@pytest.mark.parametrize("close", [False, True])
def test_no_request_of_wrk_fails(stock: WebPath, close: bool) -> None:
    header = ["-H", "Connection: close"] if close else []
    options = ["-t", "1", "-c", "16", "-d", "1s", "--timeout", "20s", "-s", str(_REPORT), *header]
    report = json.loads(stock.run(CLIENT, find("wrk"), *options, f"http://{stock.target}/1448").splitlines()[-1])
    assert report.pop("requests") > 100
    assert report == _NO_FAILURE


def test_no_request_of_h2load_fails(stock: WebPath) -> None:
    said = stock.run(CLIENT, find("h2load"), "--h1", "-n", "2000", "-c", "16", f"http://{stock.target}/1448")
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in said
    assert "2000 2xx" in said


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upload_of_a_gigabyte_arrives_unchanged(
    served: WebPath, program: Running, directory: Path, framing: str
) -> None:
    file, digest = directory / "upload", hashlib.sha256()
    with file.open("wb") as out:
        for number in range(_GIGABYTE // LARGEST):
            piece = body(number, LARGEST)
            out.write(piece)
            digest.update(piece)
    options = [] if framing == "length" else ["-H", "Transfer-Encoding: chunked"]
    url = f"http://{served.target}/sha256"
    before = program.memory()
    sending = served.popen(CLIENT, ["curl", "-sS", "--fail", *options, "-T", str(file), url], stdout=subprocess.PIPE)
    assert sending.stdout is not None
    samples = []
    while not select.select([sending.stdout], [], [], _SAMPLE_S)[0]:
        samples.append(program.memory())
    said = sending.communicate()[0]
    assert max(samples) < before + _BUFFERS, samples
    assert json.loads(said) == {"length": _GIGABYTE, "sha256": digest.hexdigest(), "trailers": {}}
