"""The oracle's labs are started once per number of switches."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent.plumbing.names import HOME
from tests.oracle.compare import Comparison

# Switches, and the executor that is the server's default.
_SERVERS = [(1, HOME), (2, HOME), (3, HOME), (2, "hypervisor"), (3, "snic0")]


@pytest.fixture(scope="module", params=_SERVERS, ids=lambda server: f"{server[0]}-switches-{server[1]}")
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Both worlds, with oneswitchd over one, two and three switches."""
    switches, executor = request.param
    with Comparison(switches, _binary(), executor=executor) as comparison:
        yield comparison


def _binary() -> Path | None:
    """``ONESWITCHD`` names another oneswitchd than the installed one: a debug build, a mutant."""
    named = os.environ.get("ONESWITCHD")
    return Path(named) if named else None
