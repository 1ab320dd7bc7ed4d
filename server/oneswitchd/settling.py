"""Retries while oneswitchd catches up: a port made over OVSDB reaches it a little later, on another connection."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from server.errors import ApiRefusedError

T = TypeVar("T")

LAGGING = frozenset({"patch-missing", "interface-missing"})
"""The codes of such refusals."""

_SETTLE_S = 5.0
_STEP_S = 0.05


def settled(request: Callable[[], T], codes: Collection[str] = LAGGING) -> T:
    """Make a request, repeated for some seconds while it is refused with one of these codes; raises its errors."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        try:
            return request()
        except ApiRefusedError as error:
            if error.code not in codes or time.monotonic() > deadline:
                raise
        time.sleep(_STEP_S)
