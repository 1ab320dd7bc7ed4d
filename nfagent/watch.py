"""Reports the ends of processes, also of those that are not children of this one."""

import os
import select
import threading
from collections.abc import Callable


class Watch:
    """A thread that waits for the end of processes.

    Args:
        ended: called from that thread with the name under which the process was watched.
    """

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.EPOLLIN)
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="watch processes", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        with self._lock:
            for pidfd in (*self._names, self._wake):
                os.close(pidfd)
            self._names.clear()
        self._poll.close()

    def add(self, name: str, pidfd: int) -> None:
        """Watch a process; close the descriptor when it has ended."""
        with self._lock:
            self._names[pidfd] = name
        self._poll.register(pidfd, select.EPOLLIN)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._wake:
                    return
                self._poll.unregister(descriptor)
                with self._lock:
                    name = self._names.pop(descriptor)
                os.close(descriptor)
                self._ended(name)
