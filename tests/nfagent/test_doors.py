"""Access and its limits: tokens, origins, streams, connections and listeners, with complete errors."""

import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nfagent.api import serving, tokens
from nfagent.api.access import LOCAL, Access
from nfagent.api.bridge import IS_GONE
from nfagent.api.serving import Serving, ServingError
from nfagent.api.streams import Streams, is_served
from nfagent.api.tokens import Tokens, digest
from nfagent.clients import Client
from nfagent.errors import ForbiddenError, RefusedError, UnauthorizedError, UnavailableError
from server.errors import ConfigFaultError

ACME, OPS = Client("acme", admin=False), Client("ops", admin=True)
TENANT, ADMIN = "t" * 16, "a" * 20


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access(written(tmp_path, f"acme tenant {TENANT}\nops admin {ADMIN} # a comment\n"), "nobody", LISTEN)


LISTEN = ("tcp:Host.example:80", "unix:/run/sock", "tcp:[2001:db8::1]:80", "tcp:10.0.0.9:1")


def written(directory: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """Write a token file."""
    path = directory / "tokens"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def refusal(error: type[RefusedError], act: Any) -> tuple[str, str]:
    """Return code and detail of a refusal."""
    with pytest.raises(error) as caught:
        act()
    return caught.value.code, caught.value.detail


# ---- tokens


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme tenant\n", "1: expected PROJECT admin|operator|reader|tenant TOKEN [NAME]"),
        (f"\n# x\nacme owner {TENANT}\n", "3: expected PROJECT admin|operator|reader|tenant TOKEN [NAME]"),
        (f"acme tenant {TENANT} name more", "1: expected PROJECT admin|operator|reader|tenant TOKEN [NAME]"),
        (f"acme tenant {'t' * 15}", "1: a token of 15 characters; at least 16 are needed"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigFaultError) as caught:
        Tokens(path)
    assert str(caught.value) == f"{path}:{said}"


def test_an_unsafe_or_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    with pytest.raises(ConfigFaultError, match=r"the tokens cannot be read: .*No such file"):
        Tokens(path)
    for mode in (0o640, 0o601):
        written(tmp_path, "", mode)
        with pytest.raises(ConfigFaultError) as caught:
            Tokens(path)
        assert str(caught.value) == f"{path}: others can read the tokens (mode {mode:o}); chmod 600 {path}"
    written(tmp_path, b"\xff")
    with pytest.raises(ConfigFaultError, match=r"the tokens cannot be read: .*utf-8"):
        Tokens(path)


def test_tokens_are_read_again_when_the_file_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, f"acme tenant {TENANT}\nops admin {ADMIN}#\n")
    known = Tokens(path)
    first = known.entries()
    assert [(each.digest, each.client) for each in first] == [(digest(TENANT), ACME), (digest(ADMIN), OPS)]
    assert known.entries() is first
    written(tmp_path, f"wrong\nops admin {ADMIN}\n")
    assert [each.client for each in known.entries()] == [OPS]
    assert "wrong" not in caplog.text
    assert f"{path}:1: expected PROJECT admin|operator|reader|tenant TOKEN [NAME]; left out" in caplog.text
    path.unlink()
    assert known.entries() == []
    assert Tokens(None).entries() == []
    written(tmp_path, f"acme reader {TENANT} viewer\nops operator {ADMIN}\n")
    fresh = [each.client for each in Tokens(path).entries()]
    assert [(each.role, each.project) for each in fresh] == [("reader", "acme"), ("operator", "ops")]
    assert [each.subject for each in fresh] == ["viewer", f"token {digest(ADMIN).hex()[:8]}"]
    assert len(digest("")) == len(digest("\udce4" * 1000)) == 32


def test_a_change_of_the_file_is_detected_by_its_stat(tmp_path: Path) -> None:
    path = written(tmp_path, "x")
    mark = tokens._mark(path)
    found = path.stat()
    assert mark == (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    assert tokens._mark(tmp_path / "none") is None


# ---- clients


def asked(**environ: Any) -> dict[str, Any]:
    return environ


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({"HTTP_AUTHORIZATION": f"Bearer {TENANT}"}, ACME),
        ({"HTTP_AUTHORIZATION": f"bearer  {ADMIN} "}, OPS),
        ({"HTTP_X_AUTH_TOKEN": f" {ADMIN} "}, OPS),
        ({"HTTP_AUTHORIZATION": f"Bearer {TENANT}", "HTTP_X_AUTH_TOKEN": ADMIN}, ACME),
        ({LOCAL: True}, Client("default", admin=True)),
        ({LOCAL: True, "HTTP_X_AUTH_TOKEN": "notused"}, Client("default", admin=True)),
        ({LOCAL: True, "HTTP_X_AUTH_TOKEN": TENANT}, ACME),
    ],
)
def test_a_request_is_attributed_to_its_client(access: Access, environ: dict[str, Any], who: Client) -> None:
    assert access.client(environ) == who


def test_an_unknown_client_is_refused(access: Access) -> None:
    missing = "no token; send Authorization: Bearer TOKEN (or X-Auth-Token: TOKEN)"
    for environ in ({}, {LOCAL: False}, {"HTTP_X_AUTH_TOKEN": "notused"}, {"HTTP_AUTHORIZATION": "Bearer "}):
        assert refusal(UnauthorizedError, lambda environ=environ: access.client(environ)) == ("token-missing", missing)
    unknown = ("token-unknown", "the token of this request is unknown")
    for environ in (
        {"HTTP_AUTHORIZATION": f"Basic {TENANT}"},
        {"HTTP_AUTHORIZATION": f"Bearer {TENANT}x"},
        {"HTTP_AUTHORIZATION": "Bearer \xe4"},
        {"HTTP_X_AUTH_TOKEN": "x", LOCAL: True},
    ):
        assert refusal(UnauthorizedError, lambda environ=environ: access.client(environ)) == unknown
    assert refusal(UnauthorizedError, lambda: access.badge("x" * 16)) == unknown


def test_a_badge_opens_the_dashboard_only(access: Access) -> None:
    badge = access.badge(TENANT)
    assert len(badge) == 64
    assert badge == access.badge(TENANT) != access.badge(ADMIN)
    assert access.visitor({}, badge) == ACME
    assert access.visitor({"HTTP_X_AUTH_TOKEN": ADMIN}, badge) == ACME
    assert access.visitor({"HTTP_X_AUTH_TOKEN": ADMIN}, None) == OPS
    assert access.visitor({LOCAL: True}, "wrong") == Client("default", admin=True)
    for none in (None, "", TENANT):
        assert refusal(UnauthorizedError, lambda none=none: access.visitor({}, none))[0] == "token-missing"
    assert refusal(UnauthorizedError, lambda: access.client({"HTTP_X_AUTH_TOKEN": badge}))[0] == "token-unknown"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("", True),
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("host.example", True),
        ("HOST.example:9", True),
        ("[2001:db8::1]:80", True),
        ("10.0.0.9", True),
        ("127.0.0.8:1", True),
        ("[::1]", True),
        ("run", False),
        ("10.0.0.8", False),
        ("host.example.evil", False),
        ("Xhost.example", False),
        ("/run/sock", False),
    ],
)
@pytest.mark.parametrize("anonymous", ["admin", "operator", "reader", "tenant"])
def test_anonymous_access_requires_a_name_of_this_machine(anonymous: Any, host: str, is_own: bool) -> None:
    access = Access(None, anonymous, LISTEN)
    environ = {"HTTP_HOST": host} if host else {}
    if is_own:
        assert access.client(environ) == Client.of(anonymous, "default")
        return
    detail = f"Host {host!r} is not this machine's own; without a token ask for localhost or 127.0.0.1"
    assert refusal(ForbiddenError, lambda: access.client(environ)) == ("host-unknown", detail)


@pytest.mark.parametrize(
    ("site", "mode", "method", "is_let_in"),
    [
        ("same-origin", "cors", "POST", True),
        ("none", "navigate", "GET", True),
        ("cross-site", "navigate", "GET", True),
        ("same-site", "navigate", "HEAD", True),
        ("cross-site", "navigate", "POST", False),
        ("cross-site", "cors", "GET", False),
        ("cross-site", None, "GET", False),
        ("same-site", "no-cors", "GET", False),
    ],
)
def test_pages_of_other_sites_may_only_link_here(
    access: Access, site: str, mode: str | None, method: str, is_let_in: bool
) -> None:
    environ = {"HTTP_SEC_FETCH_SITE": site, "REQUEST_METHOD": method}
    environ |= {"HTTP_SEC_FETCH_MODE": mode} if mode else {}
    if is_let_in:
        access.check_origin(environ)
        return
    detail = "a page of another origin sent this request; only pages of this address may"
    assert refusal(ForbiddenError, lambda: access.check_origin(environ)) == ("origin-foreign", detail)


@pytest.mark.parametrize(
    ("origin", "host", "is_let_in"),
    [
        ("", "localhost", True),
        ("http://localhost:80", "localhost:80", True),
        ("https://LOCALHOST:80", "LocalHost:80", True),
        ("http://localhost", "localhost:80", False),
        ("null", "localhost", False),
        ("http://evil.example", "localhost", False),
        ("http://evil.example", "", False),
    ],
)
def test_an_origin_must_equal_the_host(access: Access, origin: str, host: str, is_let_in: bool) -> None:
    environ = {name: value for name, value in (("HTTP_ORIGIN", origin), ("HTTP_HOST", host)) if value}
    if is_let_in:
        access.check_origin(environ)
        return
    detail = f"a page of {origin} sent this request; only pages of this address may"
    assert refusal(ForbiddenError, lambda: access.check_origin(environ)) == ("origin-foreign", detail)


# ---- streams


def test_refused_streams_name_the_limit() -> None:
    streams = Streams(8)
    back = [streams.take(ACME) for _ in range(2)]
    detail = "the limit of 2 clients for project 'acme' is reached"
    assert refusal(UnavailableError, lambda: streams.take(ACME)) == ("too-many-streams", detail)
    others = [streams.take(Client(f"p{number}", admin=False)) for number in range(4)]
    for late in (Client("p0", admin=False), Client("new", admin=False)):
        detail = "the limit of clients for tenants is reached; try again later"
        assert refusal(UnavailableError, lambda late=late: streams.take(late)) == ("too-many-streams", detail)
    admins = [streams.take(OPS) for _ in range(2)]
    detail = "the limit of 8 clients is reached ([api] streams)"
    for who in (OPS, ACME):
        assert refusal(UnavailableError, lambda who=who: streams.take(who)) == ("too-many-streams", detail)
    for give_back in (*back, *others, *admins):
        give_back()
    assert (streams._taken, streams._tenants.total()) == (0, 0)
    assert all(streams.take(OPS) for _ in range(8))
    least = Streams(1)
    give_back = least.take(ACME)
    assert refusal(UnavailableError, lambda: least.take(OPS))[0] == "too-many-streams"
    give_back()
    least.take(OPS)


def test_a_changed_or_revoked_token_ends_the_access() -> None:
    def refuse() -> Client:
        raise UnauthorizedError("token-unknown", "x")

    assert is_served(ACME, {}, lambda: ACME)()
    assert not is_served(ACME, {}, lambda: Client("acme", admin=True))()
    assert not is_served(ACME, {}, refuse)()
    assert is_served(ACME, {IS_GONE: lambda: False}, lambda: ACME)()
    assert not is_served(ACME, {IS_GONE: lambda: True}, lambda: ACME)()


# ---- listeners


def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    start("200 OK", [])
    return [str(environ[LOCAL]).encode()]


def fetched(address: str) -> bytes:
    """Return the answer to a request."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        made = socket.socket(socket.AF_UNIX)
        made.connect(rest)
    else:
        host, _, port = rest.rpartition(":")
        made = socket.create_connection((host.strip("[]"), int(port)))
    with made:
        made.settimeout(30)
        made.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: made.recv(4096), b""))


def test_each_listener_marks_its_requests(directory: Path) -> None:
    path = directory / "deep/er/sock"
    served = Serving(application, [f"unix:{path}", "tcp:127.0.0.1:0"], 1)
    try:
        unix, tcp = served.addresses
        assert unix == f"unix:{path}"
        assert tcp.startswith("tcp:127.0.0.1:")
        assert fetched(unix).endswith(b"\r\n\r\nTrue")
        assert fetched(tcp).endswith(b"\r\n\r\nFalse")
        assert b"\r\nserver: nfagent\r\n" in fetched(tcp)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with pytest.raises(ServingError, match=rf"^cannot listen at unix:{path}: another process serves it$"):
            Serving(application, [unix], 1)
        with pytest.raises(ServingError, match=rf"^cannot listen at {tcp}: Address already in use$"):
            Serving(application, ["tcp:127.0.0.1:0", tcp], 1)
        assert fetched(tcp).endswith(b"False")
    finally:
        served.stop()
    assert not path.exists()
    assert not served._thread.is_alive()


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    path = directory / "sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    served = Serving(application, [f"unix:{path}"], 1)
    assert fetched(served.addresses[0]).endswith(b"True")
    served.stop()


def test_an_unusable_address_is_reported_with_the_cause(directory: Path) -> None:
    (directory / "file").touch()
    with pytest.raises(ServingError, match=r"^cannot listen at unix:.*/file/sock: (Not a directory|File exists)$"):
        Serving(application, [f"unix:{directory}/file/sock"], 1)
    with pytest.raises(ServingError, match=r"^cannot listen at tcp:no-such-host.invalid:1: "):
        Serving(application, ["tcp:no-such-host.invalid:1"], 1)


def test_listeners_time_out_stalled_clients() -> None:
    for address, shown in (("127.0.0.1:0", "tcp:127.0.0.1:"), ("[::1]:0", "tcp:[::1]:")):
        try:
            listener, actual = serving._tcp("tcp", address)
        except OSError:
            assert address.startswith("[")  # a machine without IPv6
            continue
        with listener:
            assert actual == f"{shown}{listener.getsockname()[1]}"
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            assert listener.type == socket.SOCK_STREAM
