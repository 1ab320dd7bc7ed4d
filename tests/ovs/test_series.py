"""The patches apply to the sources that Debian has, follow Open vSwitch's rules, and pass their own tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ovs.conftest import ROOT, TESTED, VERSIONS, build

# They build Open vSwitch.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("version", VERSIONS)
def test_series_applies_and_passes_checkpatch(version: str) -> None:
    build(version, "source")
    patches = sorted((ROOT / "ovs-patches" / version).glob("*.patch"))
    source = ROOT / ".venv" / f"ovs-{version}" / "source"
    command = [sys.executable, "utilities/checkpatch.py", *map(str, patches)]
    result = subprocess.run(command, check=False, cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("no obvious problems found") == len(patches), result.stdout


def test_versions_have_the_same_link(programs: Path) -> None:
    """The new files are equal in all versions, so that switches of two versions can be joined."""
    for version in VERSIONS:
        build(version, "source")
    for name in ("pcie-ring.c", "pcie-ring.h", "pcie-link.c", "pcie-link.h", "netdev-pcie.c"):
        texts = {(ROOT / ".venv" / f"ovs-{version}" / "source/lib" / name).read_text() for version in VERSIONS}
        assert len(texts) == 1, f"lib/{name} differs between {VERSIONS}"


def test_own_tests(programs: Path) -> None:
    # They mostly wait: all at once take a third of the time that as many as there are cores take.
    output = build(TESTED, "check", "-j12", "-k", "pcie")
    assert output.count(" ok\n") == 12, output
