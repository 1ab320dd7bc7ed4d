"""Java's HTTP client through a layer-7 load balancer."""

import shutil
from pathlib import Path

import pytest

from lab.web_path.path import CLIENT, PORT, WebPath

# A Java compiler is too large for the everyday tests (260 MB).
pytestmark = [pytest.mark.namespaces, pytest.mark.soak]

_CLIENT = Path(__file__).with_name("Client.java")


def test_the_client_of_java_gets_right_answers(served: WebPath) -> None:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed; Debian's package is default-jdk-headless")
    said = served.run(CLIENT, "java", str(_CLIENT), f"http://{served.target}:{PORT}", timeout_s=240)
    right = {"get": "200", "length": "true", "expect": "true", "chunked": "true"}
    versions = ("HTTP_1_1", "HTTP_2")
    assert said.splitlines() == [f"{version} {kind} {count}" for version in versions for kind, count in right.items()]
