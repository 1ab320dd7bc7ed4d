"""The Debian packages are in step with the programs, the pages and the units; `tools/check-packages` installs them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nfagent.config import AgentConfig
from server.config import ServerConfig

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "packaging/debian"
EXAMPLES = ROOT / "packaging/examples"

with (ROOT / "pyproject.toml").open("rb") as opened:
    PROJECT = tomllib.load(opened)
SCRIPTS = set(PROJECT["project"]["scripts"])
BINARIES = {each["target"] for each in PROJECT["tool"]["setuptools-rust"]["bins"]}


def lines(pattern: str) -> list[str]:
    """Return the lines of all files of packaging/debian with such a name."""
    return [line for path in sorted(DEBIAN.glob(pattern)) for line in path.read_text().splitlines()]


def test_the_programs_have_one_version() -> None:
    with (ROOT / "Cargo.toml").open("rb") as file:
        assert tomllib.load(file)["workspace"]["package"]["version"] == PROJECT["project"]["version"]


def test_each_program_is_in_one_package() -> None:
    folders = ("usr/bin", "usr/libexec/nf")
    installed = [Path(line.split()[0]).name for line in lines("*.install") if line.split()[1] in folders]
    linked = [Path(line.split()[1]).name for line in lines("*.links")]
    assert sorted(installed) == sorted(BINARIES)
    assert sorted(linked) == sorted(SCRIPTS)


def test_each_manual_page_is_in_one_package() -> None:
    pages = sorted(page.stem for page in (ROOT / "docs/man").glob("*.md"))
    assert sorted(Path(line).name for line in lines("*.manpages")) == pages


def test_the_packages_are_those_of_control() -> None:
    named = set(re.findall(r"^Package: (.*)$", (DEBIAN / "control").read_text(), re.MULTILINE))
    assert {path.name.partition(".")[0] for path in DEBIAN.glob("*.*")} == named


def test_the_group_of_the_unit_is_created() -> None:
    (group,) = re.findall(r"^Group=(.*)$", (ROOT / "packaging/systemd/oneswitchd.service").read_text(), re.MULTILINE)
    assert f"g {group} -" in lines("oneswitchd.sysusers")


def test_the_programs_accept_the_examples() -> None:
    server = ServerConfig.load(EXAMPLES / "server.toml")
    agent = AgentConfig.load(EXAMPLES / "agent.toml")
    assert [each.switch for each in agent.location] == [each.name for each in server.switch]


COMPLETE = """
source /dev/stdin
COMP_WORDS=({program} {begun}) COMP_CWORD=1
function=$(complete -p {program} | sed 's/.* -F \\([^ ]*\\).*/\\1/')
"$function" {program} {begun} {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("program", "begun", "completed"),
    [
        ("oneswitchd", "--pi", "--pidfile"),
        ("nf", "rep", "replay"),
        ("nfagent", "ser", "serve"),
        ("unoctl", "plu", "plumb"),
        ("uno-lab", "tou", "tour"),
    ],
)
def test_bash_completes(program: str, begun: str, completed: str) -> None:
    script = subprocess.run(
        [ROOT / "packaging/completion", program, "bash"], capture_output=True, text=True, check=True
    )
    found = subprocess.run(
        ["bash", "-c", COMPLETE.format(program=program, begun=begun)],
        input=script.stdout,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
    )
    assert found.stdout.split() == [completed], found.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell: str) -> None:
    mark = {"zsh": "#compdef {}", "fish": "complete "}[shell]
    for program in ("nf", "unoctl"):
        argv = [ROOT / "packaging/completion", program, shell]
        script = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert mark.format(program) in script


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.timeout(3600)
def test_the_packages_are_built_installed_upgraded_and_purged() -> None:
    subprocess.run(["make", "packages"], cwd=ROOT, check=True, timeout=1800)
    subprocess.run([ROOT / "tools/check-packages"], check=True, timeout=1700)


def test_the_plugin_of_charon_has_the_licence_of_its_source() -> None:
    sources = sorted((ROOT / "nfs/ipsec/charon").glob("*.[ch]"))
    assert sources
    for path in sources:
        assert path.read_text().startswith("/* SPDX-License-Identifier: GPL-2.0-or-later */\n"), path
    assert "License: GPL-2+\n" in (DEBIAN / "nf-charon.copyright").read_text()
    installed = {Path(line.split()[0]).name for line in lines("nf-charon.install")}
    assert installed == {"kernel-nf.conf", "libstrongswan-kernel-nf.so"}
