"""The oracle's labs are started once per number of switches."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.compare import Comparison


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda switches: f"{switches}-switches")
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Both worlds, with oneswitchd over one, two and three switches."""
    with Comparison(request.param, _binary()) as comparison:
        yield comparison


def _binary() -> Path | None:
    """``ONESWITCHD`` names another oneswitchd than the installed one: a debug build, a mutant."""
    named = os.environ.get("ONESWITCHD")
    return Path(named) if named else None
