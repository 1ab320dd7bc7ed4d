"""Fixtures: a short directory for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """pytest's own would be too long for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="nf-", dir="/tmp") as path:
        yield Path(path)
