"""A place for the labs that the pages start."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.directory import ENVIRONMENT
from lab.server import Lab


@pytest.fixture
def lab_dir(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Iterator[Path]:
    """Labs have their files there; the one called ``uno`` ends with the test."""
    monkeypatch.setenv(ENVIRONMENT, str(directory))
    yield directory
    Lab.named("uno").down()


@pytest.fixture
def directory() -> Iterator[Path]:
    """As ``tmp_path``, with a name that is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="ud-", dir="/tmp") as path:
        yield Path(path)
