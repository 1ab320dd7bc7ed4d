"""Fixtures: the oracle's labs, started once per number of switches."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.programs import patched_ovs
from lab.spec import Meters
from server.names import HOME, LinkType
from tests.oracle.compare import Comparison
from tests.oracle.steps import Script


@dataclass(frozen=True)
class Server:
    """oneswitchd's switches: how many, the default executor, and the options of `Comparison`.

    ``stateful``: whether rules may keep state that all ports share.
    """

    switches: int
    executor: str = HOME
    stateful: bool = False
    meters: Meters = "per-executor"
    links: tuple[LinkType, ...] = ()

    def __str__(self) -> str:
        options = {"stateful": self.stateful, "meters": self.meters, "links": self.links}
        return Script(self.switches, executor=self.executor, **options).server


_SERVERS = [
    Server(1),
    Server(2),
    Server(3),
    Server(2, "hypervisor", stateful=True),
    Server(3, "snic0", stateful=True),
    Server(3, stateful=True),
    Server(2, stateful=True, meters="gather"),
    Server(3, links=("pcie", "pcie")),
    Server(3, "snic0", stateful=True, links=("vlan", "pcie")),
]


@pytest.fixture(scope="module", params=_SERVERS, ids=str)
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Both worlds, with oneswitchd over one, two and three switches."""
    server: Server = request.param
    ovs = patched_ovs()
    if "pcie" in server.links and ovs is None:
        pytest.skip("no Open vSwitch with ports of type pcie: `make ovs` builds one")
    options = {"stateful": server.stateful, "meters": server.meters, "links": server.links}
    ovs = ovs if "pcie" in server.links else None
    with Comparison(server.switches, binary(), executor=server.executor, ovs=ovs, **options) as comparison:
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
        if not isinstance(server, Server) or not isinstance(path, Path):
            return True
        return server.executor != HOME or Script.read(path).executor == HOME

    items[:] = [item for item in items if fits(item)]


def binary() -> Path | None:
    """Return the oneswitchd named by ``ONESWITCHD``, such as a debug build or a mutant; None if unset."""
    named = os.environ.get("ONESWITCHD")
    return Path(named) if named else None
