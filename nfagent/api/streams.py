"""Limits the clients that follow events or the dashboard, each of which occupies a thread."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from nfagent.api.bridge import IS_GONE
from nfagent.clients import Client
from nfagent.errors import RefusedError, UnavailableError


class Streams:
    """Counts the taken places.

    A tenant's project may take a quarter of them, and a quarter is reserved for administrators.

    Args:
        most: number of places.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // 4)
        self._lock = threading.Lock()
        self._tenants: Counter[str] = Counter()
        self._taken = 0

    def take(self, client: Client) -> Callable[[], None]:
        """Take a place; the returned function releases it.

        Raises:
            UnavailableError: no place is left for this client.
        """
        with self._lock:
            if self._taken >= self._most:
                raise _full(f"the limit of {self._most} clients is reached ([api] streams)")
            if not client.admin and self._tenants[client.project] >= self._share:
                raise _full(f"the limit of {self._share} clients for project {client.project!r} is reached")
            if not client.admin and self._tenants.total() >= max(1, self._most - self._share):
                raise _full("the limit of clients for tenants is reached; try again later")
            self._taken += 1
            if not client.admin:
                self._tenants[client.project] += 1
        return lambda: self._give_back(client)

    def _give_back(self, client: Client) -> None:
        with self._lock:
            self._taken -= 1
            if not client.admin:
                self._tenants -= Counter([client.project])


def is_served(client: Client, environ: Mapping[str, Any], admit: Callable[[], Client]) -> Callable[[], bool]:
    """Return a function that tells whether the sender of a request is connected and still has its rights.

    Args:
        client: the sender.
        environ: of WSGI.
        admit: admits it again; its token may have been revoked.
    """
    is_gone = environ.get(IS_GONE) or (lambda: False)
    return lambda: not is_gone() and _is_still(client, admit)


def _is_still(client: Client, admit: Callable[[], Client]) -> bool:
    try:
        return admit() == client
    except RefusedError:
        return False


def _full(detail: str) -> UnavailableError:
    return UnavailableError("too-many-streams", detail)
