"""Fixtures of unoctl's tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets in it, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="uo-") as folder:
        yield Path(folder)
