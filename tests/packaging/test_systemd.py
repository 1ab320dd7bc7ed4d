"""The units of packaging/systemd, verified by systemd without running them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging/systemd"
NAMES = ("oneswitchd", "nfagent")
ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="no systemd-analyze; Debian's package systemd, which tools/prepare test installs"
)


def analyze(*arguments: str | Path) -> str:
    assert ANALYZE is not None
    done = subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_verifies_the_units(tmp_path: Path) -> None:
    for name in NAMES:
        # The programs are not installed on this machine.
        text = re.sub(r"^ExecStart=\w+", "ExecStart=/bin/true", _text(name), flags=re.MULTILINE)
        (tmp_path / f"{name}.service").write_text(text)
    said = analyze("verify", "--man=no", *(tmp_path / f"{name}.service" for name in NAMES))
    # systemd-analyze names unknown settings and continues: any line about these files is a fault.
    assert [line for line in said.splitlines() if any(name in line for name in NAMES)] == []


@needs_systemd
@pytest.mark.parametrize(("name", "threshold"), [("oneswitchd", 20), ("nfagent", 40)])
def test_the_exposure_of_the_units_is_low(name: str, threshold: int) -> None:
    """In tenths of systemd's points: 0 is nothing, 100 is a service without any restriction (which has 96)."""
    analyze("security", "--offline=yes", f"--threshold={threshold}", UNITS / f"{name}.service")


def test_network_functions_outlive_the_agent() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", _text("nfagent"), re.MULTILINE))
    assert (settings["KillMode"], settings["OOMPolicy"]) == ("process", "continue")
    assert settings["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_without_configuration_is_skipped(name: str) -> None:
    (wanted,) = re.findall(r"^ConditionPathExists=(.*)$", _text(name), re.MULTILINE)
    page = ROOT / "docs/man" / f"{name}.8.md"
    assert f"else `{wanted}`" in page.read_text(), "not the default of --config"


@pytest.mark.parametrize("name", NAMES)
def test_the_units_create_the_directories_of_the_defaults(name: str) -> None:
    """The units create the default directories of server.toml and agent.toml."""
    folder = {"oneswitchd": "oneswitch", "nfagent": "nfagent"}[name]
    for kind in ("Configuration", "Runtime", "State"):
        assert f"{kind}Directory={folder}\n" in _text(name)


def _text(name: str) -> str:
    return (UNITS / f"{name}.service").read_text()
