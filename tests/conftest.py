"""Fixtures of all tests; tests that this user cannot run are skipped, and the summary says how to run them."""

import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.directory import ENVIRONMENT
from lab.errors import NamespacesRefusedError
from lab.namespaces import unshare_command
from lab.server import Lab
from lab.spec import LabSpec

_NEEDS = ("none", "namespaces", "root")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--needs", choices=_NEEDS, default=_NEEDS[-1], help="run only tests that need no more than this (default: root)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = [need for need in _NEEDS[1:] if item.get_closest_marker(need)]
    allowed = str(item.config.getoption("--needs"))
    for need in needed:
        if _NEEDS.index(need) > _NEEDS.index(allowed):
            pytest.skip(f"needs {need}, and --needs is {allowed}")
        if refusal := _refusal(need):
            pytest.skip(refusal)


@functools.cache
def _refusal(need: str) -> str | None:
    """Return why this user lacks it; None if the user has it."""
    if need == "root":
        return None if os.geteuid() == 0 else "needs root: sudo make test-python PYTEST_ARGS='-m root'"
    try:
        unshare_command()
    except NamespacesRefusedError as error:
        return f"needs namespaces: {error} Run: sudo make test-python PYTEST_ARGS='-m namespaces'"
    return None


# ---- directories


@pytest.fixture
def directory() -> Iterator[Path]:
    """Make a directory as ``tmp_path`` does, with a path that is short enough for unix sockets in it."""
    with tempfile.TemporaryDirectory(prefix="uno-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def module_directory() -> Iterator[Path]:
    """Make a directory that a module's tests share."""
    with tempfile.TemporaryDirectory(prefix="uno-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def lab_dir(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    """Make a directory for this test's labs."""
    monkeypatch.setenv(ENVIRONMENT, str(directory))
    return directory


@pytest.fixture(scope="module")
def module_lab_dir(module_directory: Path) -> Iterator[Path]:
    """Make a directory for labs that a module's tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(module_directory))
        yield module_directory


@pytest.fixture
def lab(lab_dir: Path) -> Iterator[Lab]:
    """Start the demo's server on dummy devices: ports 1 and 2 on the hypervisor, 3 and 4 on snic0."""
    with Lab(LabSpec.demo(substrate="dummy")).start() as started:
        yield started
