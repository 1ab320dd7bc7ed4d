"""Waiting for conditions that no event announces."""

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def await_that(what: Callable[[], _Found], timeout_s: float = 60.0) -> _Found:
    """Wait until something is true; return it.

    Raises:
        AssertionError: it was not within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not become true in time")
        time.sleep(0.02)
    return found
