"""Removing virtual ports from switches, those of many threads together."""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import AbstractContextManager

from server.errors import OwnershipError


class Removals:
    """Collects the virtual ports that threads want to remove while another thread removes some.

    Connecting to the databases costs most of a removal's CPU time, and each transaction makes ovs-vswitchd
    configure all bridges: when many functions are deleted at once, that many removals would delay answers to clients.

    Args:
        turn: what a thread enters to remove; it waits there for others, but not for ever.
        remove: removes the ports with these numbers.
    """

    def __init__(
        self, turn: Callable[[], AbstractContextManager[None]], remove: Callable[[Collection[int]], None]
    ) -> None:
        self._turn = turn
        self._remove = remove
        self._lock = threading.Lock()
        self._waiting: dict[Future[None], int] = {}

    def remove(self, number: int) -> None:
        """Remove a port, and with it those for which other threads wait.

        Raises:
            ServerError: that failed, as ``remove`` says.
        """
        mine: Future[None] = Future()
        with self._lock:
            self._waiting[mine] = number
        with self._turn():
            with self._lock:
                batch, self._waiting = self._waiting, {}
            self._remove_all(batch)
        mine.result()

    def _remove_all(self, batch: dict[Future[None], int]) -> None:
        """Remove a batch; a port that is not ours does not hold up the others."""
        try:
            if batch:
                self._remove(set(batch.values()))
        except OwnershipError as error:
            if len(batch) > 1:
                for waiting, number in batch.items():
                    self._remove_all({waiting: number})
            else:
                _fail(batch, error)
        except BaseException as error:  # noqa: BLE001 - other threads wait for the result
            _fail(batch, error)
        else:
            for waiting in batch:
                waiting.set_result(None)


def _fail(batch: Collection[Future[None]], error: BaseException) -> None:
    for waiting in batch:
        waiting.set_exception(error)
