"""Fixtures: the oracle's labs, started once per number of switches."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.names import HOME
from tests.oracle.compare import Comparison
from tests.oracle.steps import Script

# Switches, the default executor, whether rules may keep state that all ports share, and what meters do.
_SERVERS = [
    (1, HOME, False),
    (2, HOME, False),
    (3, HOME, False),
    (2, "hypervisor", True),
    (3, "snic0", True),
    (3, HOME, True),
    (2, HOME, True, "gather"),
]


@pytest.fixture(
    scope="module",
    params=_SERVERS,
    ids=lambda server: f"{server[0]}-switches-{server[1]}{'-stateful' * server[2]}{'-meters' * (len(server) > 3)}",
)
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Both worlds, with oneswitchd over one, two and three switches."""
    switches, executor, stateful, *meters = request.param
    chosen = {"meters": meters[0]} if meters else {}
    with Comparison(switches, binary(), executor=executor, stateful=stateful, **chosen) as comparison:
        yield comparison


@pytest.fixture(scope="module")
def over_two_switches() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture
def both(over_two_switches: Comparison) -> Comparison:
    """Both worlds without rules, with oneswitchd over two switches."""
    over_two_switches.reset()
    return over_two_switches


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run scripts with stateful rules only on servers with one default executor."""

    def fits(item: pytest.Item) -> bool:
        chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        server, path = chosen.get("comparison"), chosen.get("path")
        if not isinstance(server, tuple) or not isinstance(path, Path):
            return True
        return server[1] != HOME or Script.read(path).executor == HOME

    items[:] = [item for item in items if fits(item)]


def binary() -> Path | None:
    """Return the oneswitchd named by ``ONESWITCHD``, such as a debug build or a mutant; None if unset."""
    named = os.environ.get("ONESWITCHD")
    return Path(named) if named else None
