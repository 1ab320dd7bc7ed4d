"""Access tokens of OpenID Connect: JSON Web Tokens, verified by the issuer's keys (RFC 8725 says how)."""

from collections.abc import Mapping
from typing import Any

import jwt

from nfagent.api.identity import client_of, invalid, unavailable
from nfagent.api.identity.keys import Keys, KeysError
from nfagent.clients import Client
from nfagent.config import OidcConfig

_PARTS = 3
_LEEWAY_S = 30  # between the clocks of issuer and agent
_REQUIRED = ("exp", "iss", "aud", "sub")


class Oidc:
    """See `nfagent.api.identity.Identity`.

    Args:
        config: ``[api.oidc]``.
        keys: the issuer's.
    """

    def __init__(self, config: OidcConfig, keys: Keys) -> None:
        self._config = config
        self._keys = keys

    def may_know(self, token: str) -> bool:
        return token.count(".") == _PARTS - 1

    def client(self, token: str) -> Client:
        claims = self._verified(token)
        subject = _text(claims.get(self._config.subject_claim)) or str(claims["sub"])
        held = _at(claims, self._config.role_claim)
        held = [held] if isinstance(held, str) else held if isinstance(held, list) else []
        project = _text(_at(claims, self._config.project_claim))
        return client_of(subject, project, [each for each in held if isinstance(each, str)], self._config.roles)

    def _verified(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            kid, algorithm = header.get("kid"), header.get("alg")
            # Before any key is looked up: the allowed ones are all asymmetric, so that no public key can be a secret.
            if algorithm not in self._config.algorithms:
                raise invalid(f"its algorithm is {algorithm!r}; expected {', '.join(self._config.algorithms)}")
            key = self._keys.find(kid)
            if key is None:
                raise invalid(f"the issuer has no key {kid!r}")
            if key.algorithm not in (None, algorithm):
                raise invalid(f"its algorithm is {algorithm}; key {kid!r} is for {key.algorithm}")
            return jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=_LEEWAY_S,
                options={"require": list(_REQUIRED)},
            )
        except KeysError as error:
            raise unavailable(self._config.issuer, str(error)) from error
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise invalid(str(error)) from error


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim, also ``realm_access.roles``, the member of one; a claim whose own name has dots comes first."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
