"""TLS: versions, reloading, and errors that name the file."""

import contextlib
import http.client
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nfagent.api import serving
from nfagent.api.certificate import Certificate, CertificateError
from nfagent.api.serving import Serving
from nfagent.config import AgentConfig
from server.errors import ApiUnreachableError, ConfigError, ConfigFaultError
from server.oneswitchd.rest import NFAGENT, Rest
from tests.nfagent.certificates import write_certificate
from tests.nfagent.world import wait_until
from unoctl.cli import app


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the scheme of the request."""
    said = f'{{"kinds": [], "scheme": "{environ["wsgi.url_scheme"]}"}}'.encode()
    start("200 OK", [("Content-Length", str(len(said)))])
    return [said]


def loaded(directory: Path, name: str = "server", key: str | None = None) -> Certificate:
    return Certificate(directory / f"{name}.pem", directory / f"{key or name}.key")


def trusting(directory: Path, name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=directory / f"{name}.pem")


def ask(kept: http.client.HTTPSConnection) -> bytes:
    kept.request("GET", "/")
    return kept.getresponse().read()


def test_a_new_certificate_serves_new_connections_and_old_ones_stay(directory: Path) -> None:
    write_certificate(directory)
    certificate = loaded(directory)
    served = Serving(application, ["tls:127.0.0.1:0", "tcp:127.0.0.1:0"], 1, certificate.context)
    try:
        assert served.addresses[0].startswith("tls:127.0.0.1:")
        port = int(served.addresses[0].rpartition(":")[2])
        (directory / "first.pem").write_bytes((directory / "server.pem").read_bytes())
        old = http.client.HTTPSConnection("127.0.0.1", port, context=trusting(directory, "first"), timeout=30)
        assert b'"https"' in ask(old)
        write_certificate(directory)
        certificate.reload()
        new = http.client.HTTPSConnection("127.0.0.1", port, context=trusting(directory, "server"), timeout=30)
        assert b'"https"' in ask(new)
        assert b'"https"' in ask(old)
        (directory / "server.key").write_text("no key")
        certificate.reload()
        newer = http.client.HTTPSConnection("127.0.0.1", port, context=trusting(directory, "server"), timeout=30)
        assert b'"https"' in ask(newer)
        for each in (old, new, newer):
            each.close()
        plain = http.client.HTTPConnection(served.addresses[1].removeprefix("tcp:"), timeout=30)
        plain.request("GET", "/")
        assert b'"http"' in plain.getresponse().read()
        plain.close()
    finally:
        served.stop()


def test_unfinished_handshakes_leave_files_for_others(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "room", lambda _: 1)
    monkeypatch.setattr(serving, "_BACKLOG", 3)
    write_certificate(directory)
    served = Serving(application, ["tls:127.0.0.1:0"], 1, loaded(directory).context)
    port = int(served.addresses[0].rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        stack.callback(served.stop)

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))

        held = [connect() for _ in range(5)]
        assert held[4].recv(1) == b""
        held[0].close()
        wait_until(lambda: _is_answered(connect(), trusting(directory, "server")))


def _is_answered(client: socket.socket, context: ssl.SSLContext) -> bool:
    with contextlib.suppress(OSError), context.wrap_socket(client, server_hostname="localhost"):
        return True
    return False


def test_versions_before_1_2_are_refused(directory: Path) -> None:
    write_certificate(directory)
    assert loaded(directory).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_an_unusable_file_is_named(directory: Path) -> None:
    write_certificate(directory)
    write_certificate(directory, "other")
    write_certificate(directory, "locked", passphrase=b"x" * 8)
    write_certificate(directory, "open")
    (directory / "open.key").chmod(0o604)
    (directory / "none.pem").write_text("nothing")
    for name, key, said in (
        ("server", "other", r"/other\.key: is not the key of .*/server\.pem$"),
        ("server", "locked", r"/locked\.key: is not a private key in PEM without a passphrase"),
        ("server", "missing", r"/missing\.key: the key cannot be read: No such file or directory$"),
        ("missing", "server", r"/missing\.pem: the certificate cannot be read: No such file"),
        ("none", "server", r"/none\.pem: is not a certificate in PEM; expected -----BEGIN CERTIFICATE-----$"),
        ("open", "open", r"/open\.key: everyone may use the key; chmod 600 "),
    ):
        with pytest.raises(CertificateError, match=said):
            loaded(directory, name, key)


@pytest.mark.parametrize(("days", "said"), [(-1, "expired at"), (3, "expires soon, at"), (30, None)])
def test_an_expired_certificate_is_a_warning(
    directory: Path, caplog: pytest.LogCaptureFixture, days: float, said: str | None
) -> None:
    write_certificate(directory, days=days)
    with caplog.at_level(logging.WARNING):
        loaded(directory)
    assert (said in caplog.text) if said else not caplog.text


def test_a_tls_address_needs_certificate_and_key() -> None:
    text = '[api]\nlisten = ["tls:0.0.0.0:1"]\ntokens = "/t"\ncertificate = "/c"\n'
    with pytest.raises(ConfigFaultError, match=r"listen\[0\].*tls:0\.0\.0\.0:1 needs certificate and key"):
        AgentConfig.parse(text)
    assert AgentConfig.parse(text + 'key = "/k"\n').api.key == "/k"


def test_unoctl_verifies_the_certificate(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificate(directory)
    served = Serving(application, ["tls:127.0.0.1:0"], 1, loaded(directory).context)
    authority = str(directory / "server.pem")
    try:
        where = served.addresses[0]
        with pytest.raises(ApiUnreachableError, match=rf"^the certificate of {where} is not trusted \(.*--cacert FILE"):
            Rest(NFAGENT, where, None, 30.0).send("GET", "/")
        run = CliRunner()
        for arguments, environment in (
            (["nf", "--cacert", authority, "kinds", "--agent", where], {}),
            (["nf", "kinds", "--agent", where], {"NFAGENT_CACERT": authority}),
        ):
            done = run.invoke(app, arguments, env=environment)
            assert done.exit_code == 0, done.output
    finally:
        served.stop()
    for path, said in (
        (directory / "no.pem", "cannot be read"),
        (directory / "server.key", "has no certificate in PEM"),
    ):
        with pytest.raises(ConfigError, match=said):
            Rest(NFAGENT, where, None, 30.0, str(path))
