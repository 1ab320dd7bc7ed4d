"""Tokens of OpenID Connect and Keystone, and attempts to forge them."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from nfagent.api.access import Access
from nfagent.api.identity.keys import Keys
from nfagent.api.making import make_access
from nfagent.clients import Client
from nfagent.config import AgentConfig
from nfagent.errors import ForbiddenError, RefusedError, UnauthorizedError, UnavailableError

KEY, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
ISSUER = "https://id.example"
GOOD = {"iss": ISSUER, "aud": ["nfagent", "x"], "sub": "7", "preferred_username": "eve", "project": "acme"}
KEYSTONE_TOKEN = "gAAAAA-a-token-of-keystone"


def jwks(**keys: rsa.RSAPrivateKey) -> str:
    listed = [json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": kid} for kid, key in keys.items()]
    return json.dumps({"keys": [*listed, {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}, {"kty": "odd"}]})


def signed(claims: dict[str, Any] | None = None, key: Any = KEY, alg: str = "RS256", **header: Any) -> str:
    made = GOOD | {"exp": time.time() + 600, "realm": {"roles": ["ops", "unmapped"]}} | (claims or {})
    return jwt.encode({k: v for k, v in made.items() if v is not None}, key, alg, headers={"kid": "one"} | header)


def configured(directory: Path, more: str) -> Access:
    return make_access(AgentConfig.parse(f"[api]\n{more}", directory / "agent.toml").api)


@pytest.fixture
def access(directory: Path) -> Access:
    (directory / "jwks.json").write_text(jwks(one=KEY))
    return configured(
        directory,
        f'[api.oidc]\nissuer = "{ISSUER}"\naudience = "nfagent"\njwks = "{directory}/jwks.json"\n'
        'algorithms = ["RS256"]\nrole_claim = "realm.roles"\nroles = { ops = "operator", staff = "tenant" }\n',
    )


def client(access: Access, token: str) -> Client:
    return access.client({"HTTP_AUTHORIZATION": f"Bearer {token}"})


def refusal(error: type[RefusedError], act: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(error) as caught:
        act()
    return caught.value.code, caught.value.detail


def test_claims_become_role_project_and_subject(access: Access) -> None:
    found = client(access, signed())
    assert (found, found.subject) == (Client.of("operator", "acme"), "eve")
    both = client(access, signed({"realm": {"roles": ["staff", "ops"]}, "project": None, "preferred_username": None}))
    assert (both, both.subject) == (Client.of("operator", "default"), "7")
    assert client(access, signed({"realm": {"roles": "staff"}})) == Client.of("tenant", "acme")
    assert client(access, signed({"exp": time.time() - 10})).role == "operator"  # clocks differ a little
    none = refusal(ForbiddenError, lambda: client(access, signed({"realm": ["ops"]})))
    assert none == ("role-missing", "'eve' needs one of the roles ops, staff; it has none")
    code, _ = refusal(ForbiddenError, lambda: client(access, signed({"realm": {"roles": ["staff"]}, "project": ""})))
    assert code == "project-missing"


def _public() -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return KEY.public_key().public_bytes(serialization.Encoding.PEM, form)


def _hs256_with_the_public_key() -> str:
    """PyJWT refuses to sign so; forgers do not use it."""
    import base64
    import hmac

    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    head = part(b'{"alg":"HS256","kid":"one"}')
    body = part(json.dumps(GOOD | {"exp": time.time() + 600, "realm": {"roles": ["ops"]}}).encode())
    return f"{head}.{body}.{part(hmac.digest(_public(), f'{head}.{body}'.encode(), 'sha256'))}"


FORGED = {
    "alg none": (lambda: signed(key=None, alg="none"), "its algorithm is 'none'; expected RS256"),
    "HS256 with the public key": (_hs256_with_the_public_key, "its algorithm is 'HS256'; expected RS256"),
    "an algorithm that is not allowed": (lambda: signed(alg="PS256"), "its algorithm is 'PS256'; expected RS256"),
    "a shared key": (lambda: signed(kid="shared"), "the issuer has no key 'shared'"),
    "another key": (lambda: signed(key=OTHER), "Signature verification failed"),
    "an unknown kid": (lambda: signed(kid="two"), "the issuer has no key 'two'"),
    "another audience": (lambda: signed({"aud": "x"}), "Audience doesn't match"),
    "no audience": (lambda: signed({"aud": None}), 'missing the "aud" claim'),
    "another issuer": (lambda: signed({"iss": "https://evil.example"}), "Invalid issuer"),
    "expired": (lambda: signed({"exp": time.time() - 60}), "Signature has expired"),
    "no expiry": (lambda: signed({"exp": None}), 'missing the "exp" claim'),
    "not yet valid": (lambda: signed({"nbf": time.time() + 600}), "not yet valid"),
    "a changed body": (lambda: "e30".join(signed().partition(".")[::2]).replace("e30", ".e30"), ""),
    "no token": (lambda: "a.b.c", ""),
    "a kid that is not text": (lambda: signed(kid="x") + "=", ""),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_token_is_refused(access: Access, how: str) -> None:
    make, said = FORGED[how]
    code, detail = refusal(UnauthorizedError, lambda: client(access, make()))
    assert code == "token-invalid"
    assert said in detail


def test_unknown_keys_are_fetched_at_most_every_30_seconds(directory: Path) -> None:
    path, now = directory / "jwks.json", [0.0]
    keys = Keys(str(path), None, lambda: now[0])  # pyright: ignore[reportArgumentType]
    path.write_text(jwks(one=KEY))
    assert keys.find("one") is not None
    path.write_text(jwks(two=KEY))
    assert keys.find("two") is None
    now[0] = 31.0
    assert keys.find("two") is not None
    assert keys.find("one") is None
    path.write_text("broken")
    now[0] = 3700.0
    assert keys.find("two") is not None  # those read before stay
    path.write_text(jwks(three=OTHER))
    now[0] = 3800.0
    assert keys.find("two") is None
    assert keys.find(None) == keys.find("three") is not None


class FakeKeystone:
    """Answers as Keystone's ``GET /v3/auth/tokens``, and counts."""

    def __init__(self) -> None:
        self.asked, self.status = 0, 200
        self.token: dict[str, Any] = {
            "expires_at": "2999-01-01T00:00:00.000000Z",
            "user": {"id": "u1", "name": "eve", "domain": {"id": "default"}},
            "project": {"id": "p1", "name": "acme"},
            "roles": [{"id": "r", "name": "member"}],
        }


@contextmanager
def keystone(fake: FakeKeystone) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked += 1
            known = self.headers["X-Auth-Token"] == self.headers["X-Subject-Token"] == KEYSTONE_TOKEN
            is_right = known and self.path == "/v3/auth/tokens"
            self.send_response(fake.status if is_right else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"token": fake.token} if is_right else {}).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v3"
        server.shutdown()
        thread.join()


def test_keystone_tells_whose_a_token_is(directory: Path) -> None:
    fake = FakeKeystone()
    with keystone(fake) as url:
        roles = 'roles = { member = "tenant", admin = "admin" }'
        access = configured(directory, f'[api.keystone]\nurl = "{url}/"\n{roles}\n')

        def ask(token: str = KEYSTONE_TOKEN) -> Client:
            return access.client({"HTTP_X_AUTH_TOKEN": token})

        for _ in range(3):
            assert (ask(), ask().subject, fake.asked) == (Client.of("tenant", "p1"), "eve", 1)
        for _ in range(2):
            assert refusal(UnauthorizedError, lambda: ask("x" * 20))[0] == "token-invalid"
        assert fake.asked == 2  # refusals are kept, too
        with pytest.raises(UnauthorizedError):
            access.badge(KEYSTONE_TOKEN)

        fresh = f'[api.keystone]\nurl = "{url}"\ncache_s = 0\nproject = "name"\n{roles}\n'
        access = configured(directory, fresh)
        fake.token["roles"].append({"name": "admin"})
        assert ask() == Client.of("admin", "acme")
        del fake.token["project"]
        assert ask() == Client.of("admin", "default")
        fake.token["roles"] = [{"name": "member"}]
        assert refusal(ForbiddenError, ask)[0] == "project-missing"
        fake.token["roles"] = []
        assert refusal(ForbiddenError, ask)[1] == "'eve' needs one of the roles member, admin; it has none"
        access = configured(directory, fresh)
        fake.token["expires_at"] = "2001-01-01T00:00:00Z"
        assert refusal(UnauthorizedError, ask)[1].endswith("it has expired")
        access, fake.status = configured(directory, fresh), 500
        assert "answered HTTP 500" in refusal(UnavailableError, ask)[1]
        access, fake.status, fake.token = configured(directory, fresh), 200, {}
        assert "its answer: token.expires_at" in refusal(UnavailableError, ask)[1]
    access = configured(directory, fresh)
    assert refusal(UnavailableError, ask)[0] == "identity-unavailable"


def test_a_plain_http_address_is_for_this_machine_only(directory: Path) -> None:
    with pytest.raises(Exception, match=r"api\.keystone\.url.*is not an https address"):
        configured(directory, '[api.keystone]\nurl = "http://keystone:5000/v3"\nroles = { a = "admin" }\n')
