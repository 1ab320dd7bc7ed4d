"""Failures to start a process."""

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from nfagent.errors import LaunchError
from nfagent.launch import Task, ssh
from nfagent.launch.local import LocalLauncher

KEY = "one.hypervisor"


@pytest.fixture
def launcher(directory: Path) -> LocalLauncher:
    return LocalLauncher(directory / "run", directory / "log")


def task(**fields: Any) -> Task:
    values: dict[str, Any] = {"incarnation": "a", "enter": (), "command": ("true",), "config": "{}", "variables": {}}
    return Task(KEY, **(values | fields))


@pytest.mark.parametrize("suffix", ["json", "lock", "sock"])
def test_an_unwritable_file_is_named(launcher: LocalLauncher, directory: Path, suffix: str) -> None:
    path = directory / "run" / f"{KEY}.{suffix}"
    path.mkdir()
    with pytest.raises(LaunchError, match=rf"{KEY}.*: .*{path}"):
        launcher.start(task())


def test_a_failed_start_closes_all_descriptors(launcher: LocalLauncher) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with Path("/dev/null").open() as good, pytest.raises(LaunchError, match=r"true cannot start: .*Bad file"):
        launcher.start(task(descriptors={7: good.fileno(), 8: 1 << 20}))
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert launcher.find(KEY) is None


def test_an_exhausted_process_table_is_reported(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "posix_spawn", full)
    with pytest.raises(LaunchError, match=r"true cannot start: .*temporarily unavailable"):
        launcher.start(task())


def test_a_forwarded_socket_with_a_full_queue_does_not_answer(directory: Path) -> None:
    path = directory / "sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))  # fills the queue of one
        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.append(ssh._answers(path)), daemon=True)
        asking.start()
        asking.join(30)
        assert answers == [False]
