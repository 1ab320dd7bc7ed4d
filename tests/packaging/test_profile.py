"""rustc gets the profile of oneswitchd for an optimised build of its crates, and the profile fits what it compiles."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import LabError
from lab.control_plane import find_installed

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "oneswitch/profile"
VERSION = "1.95.0"
MACHINE = platform.machine()
_SYMBOL = re.compile(r"_ZN(?:10oneswitchd|14oneswitch_core|10openflow13)\w+17h[0-9a-f]{16}E")


@pytest.fixture
def wrapper(directory: Path) -> Path:
    """Return a copy of the wrapper, beside an empty profile of one version."""
    (directory / f"{VERSION}-{MACHINE}.profdata").touch()
    return Path(shutil.copy(PROFILE / "rustc", directory))


def arguments_of(wrapper: Path, *arguments: str, version: str = VERSION, into: str = "") -> list[str]:
    """Return the arguments with which the wrapper calls rustc."""
    rustc = wrapper.with_name("its rustc")
    rustc.write_text(
        f"""#!/bin/sh
[ "$1" != --version ] || {{ echo "rustc {version} (59807616e 2026-04-14)"; exit; }}
printf '%s\\n' "$@"
"""
    )
    rustc.chmod(0o755)
    environment = os.environ | {"TRAIN_INTO": into}
    done = subprocess.run([wrapper, rustc, *arguments], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


@pytest.mark.parametrize("crate", ["oneswitchd", "oneswitch_core", "openflow13", "tokio", "mio", "bytes"])
def test_crates_of_oneswitchd_are_compiled_with_the_profile(wrapper: Path, crate: str) -> None:
    arguments = ["--crate-name", crate, "a file.rs", "-C", "opt-level=3"]
    used = f"profile-use={wrapper.parent}/{VERSION}-{MACHINE}.profdata"
    assert arguments_of(wrapper, *arguments) == [*arguments, "-C", used]
    assert arguments_of(wrapper, *arguments, into="/counts") == [*arguments, "-C", "profile-generate=/counts"]
    assert arguments_of(wrapper, *arguments, version="1.95.1") == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["-vV"],
        ["--crate-name", "nf", "-C", "opt-level=3"],
        ["--crate-name", "oneswitchd_tests", "-C", "opt-level=3"],
        ["--crate-name", "oneswitchd", "-C", "debuginfo=line-tables-only"],
    ],
    ids=["version", "other crate", "longer name", "not optimised"],
)
def test_everything_else_is_compiled_without_it(wrapper: Path, arguments: list[str]) -> None:
    assert arguments_of(wrapper, *arguments) == arguments
    assert arguments_of(wrapper, *arguments, into="/counts") == arguments


def test_an_error_of_rustc_is_the_result(wrapper: Path) -> None:
    for optimised in ([], ["-C", "opt-level=3"]):
        done = subprocess.run([wrapper, "false", "--crate-name", "tokio", *optimised], check=False)
        assert done.returncode == 1


def test_rustc_gets_variables_that_no_shell_can_name(wrapper: Path) -> None:
    name = "CARGO_BIN_EXE_nf-dpi"
    done = subprocess.run([wrapper, "env"], capture_output=True, text=True, check=True, env=os.environ | {name: "x"})
    assert f"{name}=x" in done.stdout.splitlines()


def test_the_profile_is_of_the_code_that_rustc_compiles() -> None:
    """The names of its functions are also in the program: they change with the version of rustc and the crates."""
    try:
        program = find_installed("oneswitchd")
    except LabError as error:
        pytest.skip(str(error))
    cargo = Path(sys.executable).with_name("cargo")
    if not cargo.exists():
        pytest.skip("no .venv/bin/cargo; make build writes it")
    version = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    profile = PROFILE / f"{version}-{MACHINE}.profdata"
    if not profile.exists():
        pytest.skip(f"no {profile.name}; make train writes one for this rustc")
    counted = set(_SYMBOL.findall(profile.read_bytes().decode("latin-1")))
    symbols = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    compiled = set(_SYMBOL.findall(symbols))
    share = len(counted & compiled) / len(compiled)
    assert share > 0.25, f"{share:.0%} of the functions of {program} are in {profile}; renew it: make train"
