"""A browser, and an agent whose dashboard shows samples."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.nfagent.dashboard import sample
from tests.nfagent.dashboard.stage import Stage, Tab, browser, chromium, stage

expect.set_options(timeout=60_000)  # ms; a busy machine is slow


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    path = chromium()
    assert path
    with browser(path) as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Stage]:
    with stage(sample.server()) as made:
        yield made


@pytest.fixture
def shown(shared: Stage) -> Stage:
    shared.shown = sample.server()
    return shared


@pytest.fixture
def tab(started: Browser) -> Iterator[Tab]:
    context = started.new_context()
    yield Tab(context)
    context.close()
