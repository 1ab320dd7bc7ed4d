"""TLS at a listener of ``l7lb``: stock clients, versions and ciphers, loss, a move, and a signer that ends."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.web_path.balancers import Running, Settings, await_that, find, l7lb, prefix, running
from lab.web_path.certificates import NAME, Certificate, certificate
from lab.web_path.impairment import Faults
from lab.web_path.path import CLIENT, MIDDLE, ORIGINS, PORT, WebPath
from nfagent.control import Control
from tests.l7lb.bodies import LARGEST, body
from tests.l7lb.conftest import origin
from tests.l7lb.moving_instance import MovingInstance

pytestmark = pytest.mark.namespaces

_SIZE = 4_000_000
_VERSIONS = ("1.2", "1.3")


def _listener(files: Certificate) -> Settings:
    return Settings(listener={"tls": {"certificate": str(files.certificate), "key": str(files.key)}})


@pytest.fixture(scope="module")
def files(module_directory: Path) -> Certificate:
    """Write a certificate."""
    return certificate(module_directory)


@pytest.fixture(scope="module")
def path(module_directory: Path, files: Certificate) -> Iterator[WebPath]:
    """Start a balancer that terminates TLS, between wires that can be impaired, and the checking servers."""
    with (
        WebPath(impaired=True) as path,
        origin(path, module_directory),
        l7lb(path, module_directory, ORIGINS, settings=_listener(files)),
    ):
        yield path


def _counter(home: Path, name: str) -> float:
    return Control(home / "l7lb.sock").ask("counters")[name]


def _url(path: WebPath, rest: str) -> str:
    return f"https://{path.target}:{PORT}{rest}"


def _curl(path: WebPath, files: Certificate, *arguments: str) -> str:
    command = ("curl", "-sS", "--fail", "--max-time", "50", "--noproxy", "*", "--cacert", str(files.certificate))
    return path.run(CLIENT, *command, *arguments)


@pytest.mark.parametrize("version", _VERSIONS)
def test_curl_sees_each_request_of_a_connection_routed(path: WebPath, files: Certificate, version: str) -> None:
    servers = [ORIGINS[number] for number in (0, 1, 2, 0)]
    outputs = [
        word for each in servers for word in ("-o", "/dev/null", _url(path, f"{prefix(each)}/bytes?seed=1&size=5"))
    ]
    options = ("--http1.1", f"--tlsv{version}", "--tls-max", version)
    said = _curl(path, files, *options, "-w", "%{num_connects} %header{x-origin}\\n", *outputs)
    assert [line.split() for line in said.splitlines()] == [
        [str(int(number == 0)), each.address] for number, each in enumerate(servers)
    ]


_REQUESTS = """
import hashlib, json, sys, requests
session = requests.Session()
session.verify, base = sys.argv[1], sys.argv[2]
session.trust_env = False
digests = []
for number in range(20):
    data = bytes([number]) * (number * 9000)
    said = session.post(base + "/sha256", data=data, timeout=30).json()
    digests.append(said["sha256"] == hashlib.sha256(data).hexdigest())
print(json.dumps(digests))
"""


@pytest.mark.parametrize("ipv6", [False, True])
def test_requests_verifies_and_uses_a_session(path: WebPath, files: Certificate, ipv6: bool) -> None:
    target = f"https://[{path.target6}]:{PORT}" if ipv6 else _url(path, "")
    said = path.run(CLIENT, sys.executable, "-c", _REQUESTS, str(files.certificate), target)
    assert json.loads(said) == [True] * 20


def _handshake(path: WebPath, *options: str) -> str:
    """Return what openssl says about a handshake."""
    command = ["openssl", "s_client", "-connect", f"{path.target}:{PORT}", "-servername", NAME, *options]
    return path.run(CLIENT, "sh", "-c", '"$@" </dev/null 2>&1', "sh", *command, check=False)


@pytest.mark.parametrize("version", ["tls1", "tls1_1"])
def test_old_versions_are_refused(path: WebPath, version: str) -> None:
    said = _handshake(path, f"-{version}", "-cipher", "ALL:@SECLEVEL=0")
    # Their hellos also lack the signature algorithms that TLS 1.2 requires.
    assert "alert handshake failure" in said or "alert protocol version" in said
    assert "Cipher is (NONE)" in said


@pytest.mark.parametrize(
    "cipher",
    ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "DHE-RSA-AES128-GCM-SHA256", "aNULL"],
)
def test_weak_ciphers_are_refused(path: WebPath, cipher: str) -> None:
    said = _handshake(path, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
    assert "alert handshake failure" in said
    assert "Cipher is (NONE)" in said


@pytest.mark.parametrize(
    ("version", "option", "cipher"),
    [
        ("tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"),
        ("tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"),
        ("tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
    ],
)
def test_strong_ciphers_are_accepted(path: WebPath, version: str, option: str, cipher: str) -> None:
    said = _handshake(path, f"-{version}", option, cipher, "-alpn", "h2,http/1.1")
    assert f"Cipher is {cipher}" in said
    assert "ALPN protocol: http/1.1" in said
    assert "Compression: NONE" in said


def test_a_renegotiation_is_refused(path: WebPath) -> None:
    argv = ["openssl", "s_client", "-connect", f"{path.target}:{PORT}", "-tls1_2"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    said = ""
    with path.popen(CLIENT, argv, text=True, **pipes) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for line in client.stdout:
            said += line
            if "Verify return code" in line:
                client.stdin.write("R\n")
                client.stdin.flush()
    assert "RENEGOTIATING" in said
    assert "unexpected message" in said


def test_bodies_arrive_unchanged_under_loss(path: WebPath, files: Certificate, directory: Path) -> None:
    assert path.front is not None
    assert path.back is not None
    data = (body(8, LARGEST) * (_SIZE // LARGEST + 1))[:_SIZE]
    upload, download = directory / "upload", directory / "download"
    upload.write_bytes(data)
    path.front.set(1, Faults(loss=0.01))
    path.back.set(2, Faults(loss=0.01))
    try:
        said = json.loads(_curl(path, files, "-T", str(upload), _url(path, "/sha256")))
        _curl(path, files, "-o", str(download), _url(path, f"/bytes?seed=9&size={LARGEST}"))
    finally:
        path.front.set(0, Faults())
        path.back.set(0, Faults())
    assert (said["length"], said["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert download.read_bytes() == body(9, LARGEST)


# ---- moves and signers, each with a balancer of its own


_HALVES = """
import hashlib, ssl, socket, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.minimum_version = context.maximum_version = ssl.TLSVersion[sys.argv[4]]
plain = socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=60)
plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
with context.wrap_socket(plain, server_hostname="web.test") as client:
    for _ in range(int(sys.argv[5])):
        client.sendall(b"GET /bytes?seed=5&size=%d HTTP/1.1\\r\\nHost: web\\r\\n\\r\\n" % int(sys.argv[6]))
        head, digest, length = b"", hashlib.sha256(), 0
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += client.recv(1)
        print("half", flush=True)
        assert sys.stdin.readline() == "go\\n"
        while length < int(sys.argv[6]):
            piece = client.recv(65536)
            assert piece, length
            digest.update(piece)
            length += len(piece)
        print(digest.hexdigest(), flush=True)
"""


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_download_continues_while_the_instance_moves(directory: Path, version: str) -> None:
    own = certificate(directory)
    hows = ("memfd", "copy")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        WebPath() as path,
        origin(path, directory),
        MovingInstance(path, directory, _listener(own)) as instance,
    ):
        words = [str(own.certificate), path.target, str(PORT), version, str(len(hows)), str(LARGEST)]
        with path.popen(CLIENT, [sys.executable, "-c", _HALVES, *words], **pipes) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            for how in hows:
                assert client.stdout.readline() == "half\n"
                instance.move(how)
                client.stdin.write("go\n")
                client.stdin.flush()
                assert client.stdout.readline().strip() == hashlib.sha256(body(5, LARGEST)).hexdigest()
            client.stdin.close()
        assert instance.counters()["tls_handshakes"] == 1


def _signer(path: WebPath, home: Path, key: Path) -> Any:
    """Run a signer in the middle."""
    argv = [find("nf"), "signer", f"--key={key}", f"--listen=unix:{home}/signer"]
    return running(path, MIDDLE, argv, home / "signer.log")


def _await_signer(program: Running, home: Path) -> None:
    await_that((home / "signer").exists, program, home / "signer.log")


def test_without_its_signer_connections_go_on_and_handshakes_fail(directory: Path) -> None:
    own = certificate(directory)
    settings = Settings(listener={"tls": {"certificate": str(own.certificate), "signer": f"unix:{directory}/signer"}})
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    digest = hashlib.sha256(body(5, 100_000)).hexdigest()
    with WebPath() as path, origin(path, directory), l7lb(path, directory, ORIGINS, settings=settings):
        words = [str(own.certificate), path.target, str(PORT), "TLSv1_3", "2", "100000"]
        with _signer(path, directory, own.key) as signer:
            _await_signer(signer, directory)
            client = path.popen(CLIENT, [sys.executable, "-c", _HALVES, *words], **pipes)
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline() == "half\n"
        with client:
            client.stdin.write("go\ngo\n")
            client.stdin.flush()
            assert [client.stdout.readline().strip() for _ in range(3)] == [digest, "half", digest]
        for version in ("tls1_2", "tls1_3"):
            assert "alert internal error" in _handshake(path, f"-{version}")
        assert _counter(directory, "tls_handshakes") == 1
        assert _counter(directory, "tls_handshakes_failed") == 2
        (directory / "signer").unlink()
        with _signer(path, directory, own.key) as signer:
            _await_signer(signer, directory)
            _curl(path, own, "-o", "/dev/null", _url(path, "/bytes?seed=1&size=5"))
