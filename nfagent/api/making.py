"""Makes the parts of access from agent.toml."""

import ssl
from pathlib import Path

from nfagent.api.access import Access
from nfagent.api.certificate import Certificate, CertificateError
from nfagent.api.identity import Identity
from nfagent.api.identity.keys import Keys
from nfagent.api.identity.keystone import Keystone
from nfagent.api.identity.oidc import Oidc
from nfagent.config import ApiConfig


def make_access(config: ApiConfig) -> Access:
    """Make what authenticates clients.

    Raises:
        ConfigError, CertificateError: a file cannot be used.
    """
    identities: list[Identity] = []
    if config.oidc is not None:
        identities.append(Oidc(config.oidc, Keys(config.oidc.jwks, _trust(config.oidc.cacert))))
    if config.keystone is not None:
        identities.append(Keystone(config.keystone, _trust(config.keystone.cacert)))
    return Access(Path(config.tokens) if config.tokens else None, config.anonymous, config.listen, identities)


def make_certificate(config: ApiConfig) -> Certificate | None:
    """Make the certificate of ``tls:`` addresses.

    Raises:
        CertificateError: a file cannot be used.
    """
    return Certificate(Path(config.certificate), Path(config.key)) if config.certificate and config.key else None


def _trust(cacert: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cacert)
    except OSError as error:  # ssl.SSLError is one
        raise CertificateError(f"{cacert}: has no certificate authorities in PEM: {error.strerror}") from error
