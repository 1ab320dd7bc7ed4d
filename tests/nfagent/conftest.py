"""An agent for each module of tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nfagent.world import World


@pytest.fixture
def directory() -> Iterator[Path]:
    """As ``tmp_path``, with a name that is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="nfagent-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One for a module."""
    with tempfile.TemporaryDirectory(prefix="nfagent-") as name:
        made = World(Path(name))
        yield made
        made.close()


@pytest.fixture
def own_world(directory: Path) -> Iterator[World]:
    """One that a test may stop and start again, and that is as it was made."""
    made = World(directory)
    yield made
    made.close()
