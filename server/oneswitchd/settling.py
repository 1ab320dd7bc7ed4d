"""What oneswitchd cannot do yet: a port made over OVSDB reaches it a little later, on another connection."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from server.errors import ApiRefusedError

T = TypeVar("T")

LAGGING = frozenset({"patch-missing", "interface-missing"})
"""Codes of what it then refuses."""

_SETTLE_S = 5.0
_STEP_S = 0.05


def settled(request: Callable[[], T], codes: Collection[str] = LAGGING) -> T:
    """Make a request, for some seconds again while it is refused with one of these codes; raises what it does."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        try:
            return request()
        except ApiRefusedError as error:
            if error.code not in codes or time.monotonic() > deadline:
                raise
        time.sleep(_STEP_S)
