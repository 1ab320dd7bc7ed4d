"""The server's certificate: TLS 1.2 and 1.3, from PEM files that are read again on request."""

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from nfagent.errors import AgentError

_log = logging.getLogger(__name__)

_SOON = timedelta(days=14)


class CertificateError(AgentError):
    """A certificate or key cannot be used."""


class Certificate:
    """The certificate of all ``tls:`` addresses.

    Args:
        certificate: PEM, the server's own certificate first.
        key: PEM, without a passphrase.

    Attributes:
        context: for listeners; each handshake uses the newest files that were usable.

    Raises:
        CertificateError: one cannot be used; the message names the file.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.context = self._load()

    def reload(self) -> None:
        """Read the files again. If they cannot be used, log why and go on with the old ones.

        Established connections keep the certificate of their handshake.
        """
        try:
            self._load()  # a failed load would leave `context` with half of it
            self.context.load_cert_chain(self._certificate, self._key, _no_passphrase)
        except (CertificateError, OSError) as error:
            _log.error("%s; the previous certificate stays in use", error)
        else:
            _log.info("%s: read again", self._certificate)

    def _load(self) -> ssl.SSLContext:
        leaf = self._leaf()
        _read(self._key, "key")
        if self._key.stat().st_mode & 0o007:
            raise CertificateError(f"{self._key}: everyone may use the key; chmod 600 {self._key}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, _no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"is not the key of {self._certificate}"
            else:
                problem = f"is not a private key in PEM without a passphrase ({error.reason or error})"
            raise CertificateError(f"{self._key}: {problem}") from error
        self._warn(leaf)
        return context

    def _leaf(self) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(_read(self._certificate, "certificate"))
        except ValueError as error:
            problem = "is not a certificate in PEM; expected -----BEGIN CERTIFICATE-----"
            raise CertificateError(f"{self._certificate}: {problem}") from error

    def _warn(self, leaf: x509.Certificate) -> None:
        ends, begins, now = leaf.not_valid_after_utc, leaf.not_valid_before_utc, datetime.now(UTC)
        if ends < now:
            _log.warning("%s expired at %s; clients will refuse it", self._certificate, ends)
        elif begins > now:
            _log.warning("%s is not valid before %s; clients will refuse it", self._certificate, begins)
        elif ends < now + _SOON:
            _log.warning("%s expires soon, at %s", self._certificate, ends)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: the {what} cannot be read: {error.strerror}") from error


def _no_passphrase() -> str:
    """Keep OpenSSL from asking at the terminal."""
    return ""
