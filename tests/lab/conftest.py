"""Fixtures: labs, their switches, and an ordinary user to run them as."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.directory import ENVIRONMENT
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec

ORDINARY_UID = 1000
PROJECT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def demo(module_lab_dir: Path) -> Iterator[Lab]:
    """Start the demo server with learning bridges as switches; shared by a module's tests."""
    with Lab(LabSpec.demo()).start() as lab:
        learn(lab)
        yield lab


@pytest.fixture
def plain_forwarding() -> Callable[[Lab], None]:
    """Return a function that turns a lab's switches into learning bridges."""
    return learn


def learn(lab: Lab) -> None:
    """Turn switches into learning bridges: without oneswitchd's rules they forward nothing."""
    for switch in lab.state.switches:
        command = ["ovs-ofctl", "-OOpenFlow13", "add-flow", switch.edge or switch.virt, "priority=0,actions=NORMAL"]
        subprocess.run(command, check=True, env=environment())


@pytest.fixture
def members() -> Callable[[str], list[int]]:
    """Return a function from a PID namespace (``readlink /proc/PID/ns/pid``) to its processes."""

    def find(namespace: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str((entry / "ns/pid").readlink()) == namespace:
                    found.append(int(entry.name))
        return found

    return find


@pytest.fixture
def run_as_user(directory: Path) -> Run:
    """Return a function that runs Python code as an ordinary user, the current one unless root."""
    variables = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(directory),
        ENVIRONMENT: f"{directory}/labs",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before: list[str] = []
    python = sys.executable
    if os.geteuid() == 0:
        os.chown(directory, ORDINARY_UID, ORDINARY_UID)
        # setpriv keeps its capabilities until it executes a program: hence the shell
        before = ["setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups"]
        before += ["sh", "-c", 'exec "$0" "$@"']
        python, packages = _python_for_others(before, variables)
        variables["PYTHONPATH"] = f"{PROJECT}{packages}"

    def run(code: str, *, inside: tuple[str, ...] = (), timeout: float = 200) -> subprocess.CompletedProcess[str]:
        command = [*before, *inside, python, "-c", code]
        return subprocess.run(
            command, env=variables, cwd="/", capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


@pytest.fixture
def story_as_user(run_as_user: Run) -> Callable[..., dict[str, Any]]:
    """Return a function that plays a story of ``uno-lab`` as an ordinary user, checks that it holds, and returns it."""

    def play(*command: str, timeout: float) -> dict[str, Any]:
        code = f"import sys; sys.argv = {['uno-lab', *command]}; from lab.cli import main; main()"
        done = run_as_user(code, timeout=timeout)
        if "is not installed" in done.stderr:
            pytest.skip(f"that user may not run this project's programs: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout)
        assert told["holds"]
        return told

    return play


def _python_for_others(before: list[str], variables: dict[str, str]) -> tuple[str, str]:
    """Return a Python that another user may run, and its PYTHONPATH: root's own may be in root's home."""
    spec = importlib.util.find_spec("ovsdbapp")
    assert spec is not None
    assert spec.origin is not None
    packages = f":{Path(spec.origin).parents[1]}"
    said = ""
    for python in (sys.executable, "/usr/bin/python3"):
        tried = subprocess.run(
            [*before, python, "-c", "import ovsdbapp, pydantic, lab.server"],
            env={**variables, "PYTHONPATH": f"{PROJECT}{packages}"},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode == 0:
            return python, packages
        said = tried.stderr.strip()
    pytest.skip(f"no Python that user {ORDINARY_UID} can run with this project's packages: {said[-300:]}")
