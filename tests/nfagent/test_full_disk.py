"""An agent whose disk is full refuses changes and says why, loses nothing, and goes on once there is room."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nfagent.faults import disk_fault
from tests.nfagent.test_api import V1, refused
from tests.nfagent.world import World, processes_of

_DISK_BYTES = 100 << 20
_PIECE = bytes(1 << 16)


@pytest.fixture
def small(directory: Path) -> Iterator[World]:
    """Start an agent whose state is on a small disk of its own."""
    state = directory / "state"
    state.mkdir()
    with ExitStack() as stack:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "none", str(state)], check=True)
        stack.callback(subprocess.run, ["umount", str(state)], check=True)
        world = World(directory)
        stack.callback(world.close)
        yield world


def _fill(file: Path) -> None:
    """Write until nothing more fits."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(_PIECE)
        except OSError:
            pass
        try:
            while True:
                out.write(b"x")
        except OSError:
            return


@pytest.mark.root
def test_a_full_disk_refuses_changes_until_there_is_room(small: World) -> None:
    before = small.create("before")
    small.wait_status(before, "active")
    assert small.operator.get(f"{V1}/faults").json()["faults"] == []
    filler = small.directory / "state/filler"
    _fill(filler)
    # The log of changes may have room left.
    orders = ({"name": f"more{number}", "kind": "sleeper", "config": {"text": "x" * 65536}} for number in range(1000))
    answers = (small.operator.post(f"{V1}/instances", json=order) for order in orders)
    answer = next(each for each in answers if each.status_code != 202)
    refused(answer, 507, "disk-full", "free some space", "nfagent.db")
    (fault,) = (each for each in small.operator.get(f"{V1}/faults").json()["faults"] if each["about"] == "disk")
    assert (fault["gravity"], "free some space" in fault["text"]) == ("critical", True)
    assert "The disk is full" in small.operator.get("/dashboard").text
    metrics = dict(
        line.split(" ") for line in small.operator.get("/metrics").text.splitlines() if "store_free" in line[:20]
    )
    assert float(metrics["nfagent_store_free_bytes"]) < 1 << 20
    assert small.show(before)["status"] == "active"
    filler.unlink()
    assert small.create("after")["status"] == "building"
    small.wait(
        lambda: not [each for each in small.operator.get(f"{V1}/faults").json()["faults"] if each["about"] == "disk"]
    )


@pytest.mark.root
def test_a_process_that_ended_while_the_disk_was_full_is_replaced_soon_after(small: World) -> None:
    made = small.create("dies")
    small.wait_status(made, "active")
    (process,) = processes_of(made["id"])
    filler = small.directory / "state/filler"
    _fill(filler)
    # The log of changes may have room left.
    config = {"text": "x" * 65536}
    small.wait(lambda: small.operator.patch(f"{V1}/instances/{made['id']}", json={"config": config}).status_code == 507)
    os.kill(process, signal.SIGKILL)
    small.wait(lambda: made["id"] in small.agent._reconciler._without_room)
    filler.unlink()
    small.wait(lambda: made["id"] not in small.agent._reconciler._without_room, 20)
    small.wait_status(made, "active")
    assert processes_of(made["id"]) not in ([], [process])


def test_little_room_is_a_warning() -> None:
    assert disk_fault(1 << 30) is None
    assert disk_fault(63 << 20) is not None
    for free, gravity in ((63 << 20, "warning"), (1 << 20, "warning"), ((1 << 20) - 1, "critical"), (0, "critical")):
        found = disk_fault(free)
        assert found is not None
        assert found[0] == gravity
