"""A certificate of the VIP, for load balancers that terminate TLS."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.web_path.path import VIP, VIP6

NAME = "web.test"


@dataclass(frozen=True)
class Certificate:
    """The paths of a self-signed certificate and its key, and of both in one file, as HAProxy reads them."""

    certificate: Path
    key: Path
    both: Path


def certificate(home: Path) -> Certificate:
    """Write a certificate with an ECDSA key on P-256 for `NAME` and the VIP's addresses."""
    files = Certificate(home / "web.crt", home / "web.key", home / "web.pem")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    words += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:{VIP},IP:{VIP6}"]
    words += ["-out", str(files.certificate), "-keyout", str(files.key)]
    subprocess.run(words, check=True, capture_output=True)
    files.both.write_text(files.certificate.read_text() + files.key.read_text())
    return files
