"""Fixtures: agents."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nfagent.api_world import Api
from tests.nfagent.world import World


@pytest.fixture(scope="module")
def world(module_directory: Path) -> Iterator[World]:
    """Return one agent for all tests of a module."""
    made = World(module_directory)
    yield made
    made.close()


@pytest.fixture
def own_world(directory: Path) -> Iterator[World]:
    """Return a new agent that the test may stop and restart."""
    made = World(directory)
    yield made
    made.close()


@pytest.fixture
def api(directory: Path) -> Iterator[Api]:
    """Return the interface on a store, without an agent."""
    made = Api(directory)
    yield made
    made.store.close()
