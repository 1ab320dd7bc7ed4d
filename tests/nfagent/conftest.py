"""An agent for each module of tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nfagent.world import World


@pytest.fixture(scope="module")
def world(module_directory: Path) -> Iterator[World]:
    """Return one for a module."""
    made = World(module_directory)
    yield made
    made.close()


@pytest.fixture
def own_world(directory: Path) -> Iterator[World]:
    """Return a fresh one that a test may stop and restart."""
    made = World(directory)
    yield made
    made.close()
