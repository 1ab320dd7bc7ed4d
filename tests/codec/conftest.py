"""Shared fixtures of the codec's tests: the compiled filter and a running Open vSwitch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codec.codec import Codec
from tests.codec.wire import Connection
from tests.crates import build_example
from tests.unoctl.dummy_ovs import DummySwitch

BRIDGE = "br0"


@pytest.fixture(scope="session")
def program() -> Path:
    return build_example("openflow13", "codec")


@pytest.fixture(scope="session")
def codec(program: Path) -> Iterator[Codec]:
    running = Codec(program)
    yield running
    running.close()


@pytest.fixture(scope="module")
def switch(module_directory: Path) -> Iterator[DummySwitch]:
    """One bridge with two dummy ports, 1 and 2."""
    with DummySwitch("s", module_directory) as running:
        running.add_bridge(BRIDGE, ["p1", "p2"])
        yield running


@pytest.fixture
def connection(switch: DummySwitch) -> Iterator[Connection]:
    with Connection(switch.folder / f"{BRIDGE}.mgmt") as open_connection:
        yield open_connection
