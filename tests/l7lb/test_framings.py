"""Answers and clients whose framing is not a plain length: no body, the end of the connection, HTTP/1.0, refusals."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.web_path.balancers import await_listening, running
from lab.web_path.path import CLIENT, PORT, SERVERS, WebPath
from tests.l7lb.bodies import LARGEST, body
from tests.l7lb.conftest import curl, raw_client

pytestmark = pytest.mark.namespaces

_SHOW = ("--write-out", "%{num_connects} %{http_code} %{size_download}\\n")


def _several(path: WebPath, *requests: str) -> list[list[str]]:
    """Send requests by one curl; return the new connections, the status and the body's length of each."""
    words = [word for request in requests for word in ("-o", "/dev/null", f"http://{path.target}{request}")]
    return [line.split() for line in curl(path, *_SHOW, *words).splitlines()]


@pytest.mark.parametrize("code", ["204", "304", "304&length=5"])
def test_an_answer_without_a_body_keeps_the_connection(served: WebPath, code: str) -> None:
    status = code[:3]
    seen = _several(
        served, f"/status?code={code}", "/bytes?seed=1&size=9", f"/status?code={code}", "/bytes?seed=1&size=8"
    )
    assert seen == [["1", status, "0"], ["0", "200", "9"], ["0", status, "0"], ["0", "200", "8"]]


@pytest.mark.parametrize("kind", ["ends", "old"])
@pytest.mark.parametrize("size", [0, 1, 100_000, LARGEST])
def test_an_answer_may_end_with_its_connection(served: WebPath, directory: Path, kind: str, size: int) -> None:
    file = directory / "answer"
    curl(served, "-o", str(file), f"http://{served.target}/{kind}?seed=3&size={size}")
    assert (file.read_bytes() if file.exists() else b"") == body(3, size)


def test_early_hints_pass_before_the_answer(served: WebPath) -> None:
    url = f"http://{served.target}/hints?seed=1&size=700"
    said = curl(served, "-v", "-o", "/dev/null", "-o", "/dev/null", url, url)
    assert said.count("< HTTP/1.1 103 Early Hints") == 2
    assert said.count("< HTTP/1.1 200 OK") == 2
    assert "Re-using existing connection" in said


@pytest.mark.parametrize("expects", [True, False])
def test_a_server_may_refuse_an_upload_before_its_end(served: WebPath, directory: Path, expects: bool) -> None:
    file = directory / "upload"
    file.write_bytes(bytes(20_000_000))
    header = "Expect: 100-continue" if expects else "Expect:"
    options = ["-sS", "--max-time", "40", "--expect100-timeout", "30", "-H", header, "-X", "POST", "-T", str(file)]
    show = ["-o", "/dev/null", "-w", "%{http_code} %{size_upload}"]
    said = served.run(CLIENT, "curl", *options, *show, f"http://{served.target}/refuse", check=False)
    status, uploaded = said.split()[:2]
    assert status == "413"
    assert not expects or uploaded == "0"


@pytest.mark.parametrize("option", ["--http1.0", "--http2"])
def test_curl_speaks_another_version(served: WebPath, directory: Path, option: str) -> None:
    """HTTP/1.0; and HTTP/1.1 with an offer of HTTP/2 that the servers do not take."""
    file = directory / "answer"
    said = curl(
        served, option, "-o", str(file), "-w", "%{http_code}", f"http://{served.target}/bytes?seed=2&size=99999"
    )
    assert (said, file.read_bytes()) == ("200", body(2, 99_999))
    said = curl(served, option, "--data-binary", f"@{file}", f"http://{served.target}/sha256")
    assert json.loads(said)["sha256"] == hashlib.sha256(body(2, 99_999)).hexdigest()


def test_clients_of_http_1_0_are_served(served: WebPath) -> None:
    assert raw_client(served, "old") == [True, True]


def test_a_client_may_close_its_side_after_the_request(served: WebPath) -> None:
    assert raw_client(served, "half_closed") is True


def test_a_refused_upgrade_leaves_a_connection_of_http(served: WebPath) -> None:
    assert raw_client(served, "refused_upgrade") == [[200, True]] * 3


@pytest.fixture
def http10(path: WebPath, directory: Path) -> Iterator[WebPath]:
    """Start Python's file server, which answers in HTTP/1.0, with files named after their size."""
    for size in (0, 1, 3_000_000):
        (directory / str(size)).write_bytes(bytes(size))
    log = directory / "log"
    argv = [sys.executable, "-m", "http.server", str(PORT), "--directory", str(directory)]
    with running(path, SERVERS, argv, log) as program:
        await_listening(path, SERVERS, PORT, program, log)
        yield path


def test_files_of_a_server_of_http_1_0_arrive(http10: WebPath) -> None:
    seen = _several(http10, "/3000000", "/0", "/1", "/3000000")
    assert [line[1:] for line in seen] == [["200", size] for size in ("3000000", "0", "1", "3000000")]
