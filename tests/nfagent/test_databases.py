"""A database of a switch that hangs or ends is told, once, and so is its return."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent import databases
from nfagent.bulletin import Bulletin
from nfagent.databases import DOWN, UP, Databases
from nfagent.store import Store, events
from tests.nfagent.world import wait_until

NAME = "snic0"


class FakeDatabase:
    """Answers each echo request as ovsdb-server does, while it does not hang."""

    def __init__(self, path: Path) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                while request := client.recv(4096):
                    self.answers.wait()
                    asked = json.loads(request)
                    client.sendall(json.dumps({"id": asked["id"], "result": asked["params"], "error": None}).encode())


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    made = Store(directory / "state")
    yield made
    made.close()


def told(store: Store) -> list[str]:
    return [event.type for event in reversed(events.newest(store.read, 10, NAME, "database."))]


def test_a_database_that_hangs_is_told_until_it_answers(
    directory: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "_SILENT_S", 0.2)
    fake, down = FakeDatabase(directory / "db.sock"), {NAME}
    addresses = {NAME: f"unix:{directory}/db.sock", "far": "ssl:192.0.2.1:6640"}
    watch = Databases(Bulletin(store), addresses, down.__contains__)

    def looked(expected: list[str]) -> None:
        def look() -> bool:
            watch.look()
            return told(store) == expected

        wait_until(look)

    fake.answers.clear()
    silent = watch._pulses[NAME]
    wait_until(lambda: (watch.look(), silent.silent_s())[1] > 0.3)
    assert told(store) == []  # the switch is down, too
    down.clear()
    looked([DOWN])
    fake.answers.set()
    looked([DOWN, UP])
    fake.answers.clear()
    looked([DOWN, UP, DOWN])
    watch.stop()
    again = Databases(Bulletin(store), addresses, down.__contains__)
    fake.answers.set()
    wait_until(lambda: (again.look(), told(store))[1] == [DOWN, UP, DOWN, UP])
    again.stop()
    fake.close()
