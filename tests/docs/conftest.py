"""Fixtures: labs that the pages start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.server import Lab


@pytest.fixture
def lab_dir(lab_dir: Path) -> Iterator[Path]:
    """End the lab ``uno``, which pages start, with the test."""
    yield lab_dir
    Lab.named("uno").down()
