"""The page's fragments with the version of their last change, rendered once for all viewers."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

TICK_S = 0.5
"""Minimum time between two editions."""


@dataclass(frozen=True)
class Fragment:
    """HTML, and the version of the page that introduced it."""

    html: str
    version: int


@dataclass(frozen=True)
class Edition:
    """The page at a version.

    Attributes:
        run: identifies the agent's run: versions of different runs are not comparable.
        fragments: by id of their element.
    """

    run: str
    version: int
    fragments: Mapping[str, Fragment]

    @property
    def id(self) -> str:
        """Return the id as clients know it."""
        return f"{self.run}-{self.version}"

    def html(self) -> dict[str, str]:
        """Return the whole page."""
        return {name: fragment.html for name, fragment in self.fragments.items()}

    def since(self, seen: str) -> dict[str, str]:
        """Return the differences from the edition with that id; everything if the id is unknown."""
        run, _, number = seen.rpartition("-")
        # Ids of this run were made here, but clients can send anything.
        is_number = number.isascii() and number.isdecimal() and len(number) <= 18
        version = int(number) if run == self.run and is_number else -1
        return {name: fragment.html for name, fragment in self.fragments.items() if fragment.version > version}


class Board:
    """Makes editions on demand, at most one each `TICK_S`.

    Args:
        make: renders the current HTML of all fragments.
    """

    def __init__(self, make: Callable[[], dict[str, str]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made = float("-inf")
        self._edition = Edition(secrets.token_hex(4), 0, MappingProxyType({}))

    def newest(self) -> Edition:
        """Return the page, at most `TICK_S` old."""
        with self._lock:
            if time.monotonic() - self._made >= TICK_S:
                self._edition = _next(self._edition, self._make())
                self._made = time.monotonic()
            return self._edition


def _next(old: Edition, html: dict[str, str]) -> Edition:
    kept = {
        name: old.fragments[name] for name in html if name in old.fragments and old.fragments[name].html == html[name]
    }
    if len(kept) == len(html):
        return old
    version = old.version + 1
    fragments = {name: kept.get(name) or Fragment(text, version) for name, text in html.items()}
    return Edition(old.run, version, MappingProxyType(fragments))
