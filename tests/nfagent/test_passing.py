"""What the old process sent has passed a switch before the new one sends: also where the switch has stood still."""

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nfagent.migrate.switching import ServerSwitching

STATISTICS = """\
pmd thread numa_id 0 core_id 3:
  packets received: 123456
main thread:
  packets received: {}
  packet recirculations: 0
"""


class Daemon:
    """An ovs-vswitchd whose main thread takes 32 packets of a backlog before it accepts a connection."""

    def __init__(self, path: Path, backlog: int, *, has_statistics: bool = True) -> None:
        self.backlog, self.received, self.has_statistics = backlog, 0, has_statistics
        self.asked: list[str] = []
        self.ends = False
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                taken = min(32, outer.backlog)
                outer.backlog, outer.received = outer.backlog - taken, outer.received + taken
                while (request := self.request.recv(1 << 16)) and not outer.ends:
                    self.request.sendall(json.dumps(outer.answer(json.loads(request))).encode())

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request["method"])
        answer: dict[str, Any] = {"id": request["id"], "result": "", "error": None}
        if request["method"] == "dpif-netdev/pmd-stats-show":
            if not self.has_statistics:
                return answer | {"result": None, "error": '"dpif-netdev/pmd-stats-show" is not a valid command'}
            answer["result"] = STATISTICS.format(self.received)
        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def daemon(directory: Path, name: str, backlog: int, **arguments: Any) -> Iterator[Daemon]:
    with contextlib.closing(Daemon(directory / f"{name}.ctl", backlog, **arguments)) as made:
        yield made


def switching(directory: Path) -> ServerSwitching:
    config = SimpleNamespace(
        oneswitchd=SimpleNamespace(tls=None),
        hypervisor=SimpleNamespace(name="hypervisor"),
        find_switch=lambda name: SimpleNamespace(control=str(directory / f"{name}.ctl")),
    )
    return ServerSwitching(cast(Any, config), cast(Any, None))


@pytest.mark.parametrize("backlog", [0, 31, 32, 96, 2500])
def test_a_backlog_is_forwarded_first(directory: Path, backlog: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfagent.migrate.switching._FRESH_S", 0.0)
    with (
        daemon(directory, "hypervisor", backlog) as hypervisor,
        daemon(directory, "snic0", 0) as snic,
    ):
        pass_switches = switching(directory).passing("snic0", "hypervisor")
        assert pass_switches(60.0) is None
        assert hypervisor.backlog == 0
        assert len(snic.asked) == 2
        hypervisor.backlog = backlog  # it has stood still again
        assert pass_switches(60.0) is None
        assert hypervisor.backlog == 0


def test_an_overloaded_switch_is_not_awaited(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfagent.migrate.switching._FRESH_S", 60.0)
    with (
        daemon(directory, "hypervisor", 1_000_000_000) as hypervisor,
        daemon(directory, "snic0", 0),
    ):
        pass_switches = switching(directory).passing("snic0", "hypervisor")
        assert pass_switches(0.05) is None
        asked = len(hypervisor.asked)
        assert asked > 2
        assert pass_switches(60.0) is None  # at once: it is as it was a moment ago
        assert len(hypervisor.asked) == asked + 2


def test_a_kernel_datapath_causes_no_wait(directory: Path) -> None:
    with (
        daemon(directory, "hypervisor", 0, has_statistics=False),
        daemon(directory, "snic0", 0),
    ):
        pass_switches = switching(directory).passing("snic0", "hypervisor")
        assert pass_switches(60.0) is None


def test_an_ended_switch_is_reported(directory: Path) -> None:
    with (
        daemon(directory, "hypervisor", 0) as hypervisor,
        daemon(directory, "snic0", 0),
    ):
        pass_switches = switching(directory).passing("snic0", "hypervisor")
        assert pass_switches(60.0) is None
        hypervisor.ends = True
        assert "hypervisor.ctl" in (pass_switches(60.0) or "")
