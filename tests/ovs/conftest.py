"""The patched Open vSwitch of `make ovs`, built once for all tests.

UNO_OVS_TEST names another version of it, and UNO_OVS_PREFIX the directory of another build.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovs.switch import FRUGAL, Switch

ROOT = Path(__file__).parents[2]
VERSIONS = sorted(path.name for path in (ROOT / "ovs-patches").glob("[0-9]*"))
TESTED = os.environ.get("UNO_OVS_TEST", "3.1")


def build(version: str, *goal: str) -> str:
    """Runs ovs-patches/build and returns its output; skips the test if this machine cannot build Open vSwitch."""
    command = [ROOT / "ovs-patches/build", version, *goal]
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        if not list((ROOT / ".venv" / f"ovs-{version}").glob("openvswitch-source_*.deb")):
            pytest.skip(f"the source of Open vSwitch {version} cannot be fetched: {result.stdout[-300:]}")
        if "run: tools/prepare ovs" in result.stdout:
            pytest.skip(result.stdout.strip())
        pytest.fail(result.stdout[-4000:])
    return result.stdout


@pytest.fixture(scope="session")
def programs() -> Path:
    """The installed programs of the patched Open vSwitch."""
    if prefix := os.environ.get("UNO_OVS_PREFIX"):
        return Path(prefix)
    build(TESTED)
    return ROOT / ".venv" / f"ovs-{TESTED}"


@pytest.fixture
def switch(directory: Path, programs: Path) -> Iterator[Switch]:
    """A switch, which must not have crashed when the test ends."""
    made = Switch(directory, programs)
    yield made
    made.stop()


@pytest.fixture
def frugal_switch(directory: Path, programs: Path) -> Iterator[Switch]:
    """A switch that gives freed memory back, also with AddressSanitizer."""
    made = Switch(directory, programs, FRUGAL)
    yield made
    made.stop()
