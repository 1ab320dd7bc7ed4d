"""The process that owns a lab: it starts everything, answers requests, and ends everything when it ends.

In the substrate netns it is the first process of the lab's PID namespace; in the substrate dummy, which has none, the
daemons ask the kernel to be killed when it ends. It runs as ``python -m lab.supervisor``, never by hand.
"""

import argparse
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.buffers import PortBuffers
from lab.directory import CONTROL_SOCKET, SPEC_FILE
from lab.errors import ControlError, LabError, StartError
from lab.namespaces import private_proc, private_run
from lab.processes import OuterProc
from lab.programs import use_ovs
from lab.running import RunningLab
from lab.spec import LabSpec
from lab.substrate import Substrate

_REQUEST_MAX = 65536


class Supervisor:
    """Serves a `RunningLab` until a request ends it or its owner ends.

    Args:
        lab: the lab.
        directory: of the lab.
        owner: the reading end of a pipe; its end of file means that the owner has ended.
        detach: the owner may end once the lab is ready.
    """

    def __init__(self, lab: RunningLab, directory: Path, owner: int, *, detach: bool) -> None:
        self._lab = lab
        self._selector = selectors.DefaultSelector()
        self._ending = False
        wake, signals = socket.socketpair()
        for end in (wake, signals):
            end.setblocking(False)
        signal.set_wakeup_fd(signals.fileno())
        self._signals = signals
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(directory / CONTROL_SOCKET))
        self._listener.listen()
        self._selector.register(wake, selectors.EVENT_READ, lambda: self._on_signal(wake))
        self._selector.register(self._listener, selectors.EVENT_READ, self._on_client)
        self._owner = owner
        self._detach = detach
        self._selector.register(owner, selectors.EVENT_READ, self._end)

    def ready(self) -> None:
        """Check the owner before reporting the lab as ready.

        Raises:
            StartError: the owner has ended.
        """
        if select.select([self._owner], [], [], 0)[0]:
            raise StartError("the process that started the lab has ended")
        if self._detach:
            self._selector.unregister(self._owner)

    def serve(self) -> None:
        """Answer requests until the end."""
        while not self._ending:
            for key, _ in self._selector.select():
                key.data()
            self._lab.reap()

    def _end(self) -> None:
        self._ending = True

    def _on_signal(self, wake: socket.socket) -> None:
        numbers = wake.recv(4096)
        if any(number in numbers for number in (signal.SIGTERM, signal.SIGINT)):
            self._end()

    def _on_client(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(5.0)
            # A client that disconnects before the answer, or sends no request at all, must not harm others.
            with contextlib.suppress(OSError, ValueError):
                request = json.loads(client.makefile().readline(_REQUEST_MAX))
                client.sendall(json.dumps(self._answer(request)).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments = {key: value for key, value in request.items() if key != "request"}
        try:
            operation = self._operations().get(request.get("request", ""))
            if operation is None:
                raise ControlError(f"unknown request {request.get('request')!r}")
            return {"result": operation(**arguments)}
        except LabError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001  a lab with a fault in one operation still has to be ended
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}

    def _operations(self) -> dict[str, Callable[..., object]]:
        return {
            "down": self._end,
            "kill": self._lab.kill,
            "start": self._lab.start,
            "link": self._lab.set_link,
            "activate": self._lab.activate,
        }


def main() -> int:
    """Build the lab of a directory, report it, and serve it."""
    options = _parse()
    for fd in (options.report_fd, options.owner_fd, options.host_net_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # a daemon that inherited them would hide this process's end from its waiters
    report = os.fdopen(options.report_fd, "w", buffering=1)

    def say(**message: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            report.write(json.dumps(message) + "\n")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # delivered through the wakeup descriptor
    os.umask(0o077)
    lab = None
    try:
        lab = _build(options, lambda text: say(progress=text))
        supervisor = Supervisor(lab, options.directory, options.owner_fd, detach=options.detach)
        lab.state.write()
        supervisor.ready()
        say(ready=True)
        report.close()
    except Exception as error:  # noqa: BLE001  whatever it was, the one who waits for the lab has to be told
        traceback.print_exc()
        say(failed=str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}")
        if lab is not None:
            lab.stop()
        return 1
    supervisor.serve()
    lab.stop()
    return 0


def _build(options: argparse.Namespace, progress: Callable[[str], None]) -> RunningLab:
    directory: Path = options.directory
    spec = LabSpec.from_json(json.loads((directory / SPEC_FILE).read_text()))
    use_ovs(spec.ovs)
    outer = OuterProc()
    lab = RunningLab(spec, directory, outer, _substrate(options, spec, outer), user_namespace=options.user_namespace)
    try:
        lab.build(progress)
    except BaseException:
        lab.stop()
        raise
    return lab


def _substrate(options: argparse.Namespace, spec: LabSpec, outer: OuterProc) -> Substrate:
    switches = options.directory / "switches"
    if spec.substrate == "dummy":
        from lab.dummy import DummySubstrate

        return DummySubstrate(spec, switches)
    from lab.netns import NetnsSubstrate

    private_run()
    proc_is_own = private_proc()
    buffers = PortBuffers(options.host_net_fd)
    substrate = NetnsSubstrate(spec, switches, outer.own_pid, buffers)
    if not proc_is_own:
        substrate.add_note("hosts see this machine's processes: the kernel refuses to mount another /proc here")
    return substrate


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--owner-fd", type=int, required=True)
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--host-net-fd", type=int)
    parser.add_argument("--user-namespace", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
