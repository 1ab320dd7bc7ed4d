"""Fixtures: simulated servers to decide for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.nfagent.decide.world import DecideWorld

Make = Callable[..., DecideWorld]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Make]:
    """Make worlds of other sizes than `world`."""
    with ExitStack() as stack:

        def make(**options: Any) -> DecideWorld:
            made = DecideWorld(tmp_path / "other", **options)
            stack.callback(made.store.close)
            return made

        yield make


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DecideWorld]:
    made = DecideWorld(tmp_path)
    yield made
    made.store.close()
