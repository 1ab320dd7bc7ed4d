"""Two hosts with an `nf` between them, each in a network namespace of its own; user namespaces suffice."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.bare_hosts import BareHosts
from lab.programs import environment
from nfagent.control import Control

PROJECT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).with_name("peers.py")


def nf_program() -> str:
    """Return the path of the program that `make build` installed."""
    beside = Path(sys.executable).with_name("nf")
    found = str(beside) if beside.exists() else shutil.which("nf")
    assert found is not None, "nf is not built: make build"
    return found


class Wire:
    """Host ``a`` (10.9.0.1, port a0) and host ``b`` (10.9.0.2, port b0); their other ends, n0 and n1, are in ``nf``.

    Args:
        directory: for sockets and files.
        queues: receive and transmit queues of all interfaces.
        mtu: of all interfaces.
    """

    def __init__(self, directory: Path, *, queues: int = 1, mtu: int = 1500) -> None:
        self.directory = directory
        hosts = (("a", "n0", 1), ("b", "n1", 2))
        links = [
            f"link add {host}0 mtu {mtu} netns {host} numrxqueues {queues} numtxqueues {queues} type veth"
            f" peer name {port} mtu {mtu} netns nf numrxqueues {queues} numtxqueues {queues}"
            for host, port, _ in hosts
        ]
        self._hosts = BareHosts(["a", "b", "nf"], links)
        for host, port, address in hosts:
            if queues > 1:
                for where, name in (("nf", port), (host, f"{host}0")):
                    self.run(where, "ethtool", "-L", name, "rx", str(queues), "tx", str(queues))
            self.run(host, "ip", "addr", "add", f"10.9.0.{address}/24", "dev", f"{host}0")
            self.run(host, "ip", "link", "set", f"{host}0", "up")
            self.run("nf", "ip", "link", "set", port, "up")

    def close(self) -> None:
        """End every process started in it."""
        self._hosts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def enter(self, host: str) -> list[str]:
        """Return the command that enters a host's namespaces; the program to run follows it."""
        return self._hosts.enter(host)

    def run(self, host: str, *command: str, check: bool = True) -> str:
        """Run a command to its end; return its output."""
        return self._hosts.run(host, *command, check=check)

    def peer(self, host: str, *arguments: str, lines: Sequence[str] = ()) -> "Peer":
        """Start a program of peers.py and wait until it is ready; it reads ``lines`` from its standard input."""
        return Peer([*self.enter(host), sys.executable, str(PEERS), *arguments], lines)

    def ping(self, target: str = "10.9.0.2", *, count: int = 3, size: int = 56) -> None:
        """Ping from a. Every echo must return, however late on a busy machine: hence one at a time."""
        for _ in range(count):
            said = self.run("a", "ping", "-c", "1", "-W", "20", "-s", str(size), target)
            assert "1 received, 0% packet loss" in said, said

    def nf(self, *options: str, kind: str = "forward", config: str = "") -> "Nf":
        """Start an instance on n0 and n1 and wait until it answers."""
        path = self.directory / "nf.toml"
        path.write_text(config)
        command = [nf_program(), "run", kind, f"--config={path}", "--port=n0", "--port=n1", f"--control={self.control}"]
        return Nf(self, [*command, *options])

    @contextmanager
    def successor(self, old: "Nf", directory: Path, *, kind: str, config: str) -> Iterator["Nf"]:
        """Start an instance in another directory, which takes over the state by shared memory; the old one is killed.

        Old and new share the interfaces, so there are neither old paths nor markers (nfs/README.md, "Migration").
        """
        state = Control(old.socket).exchange("prepare", epoch=1, secret="5e" * 32)
        self.directory = directory
        try:
            with self.nf("--backend=packet", "--hold", kind=kind, config=config) as new:
                control = Control(new.socket)
                rings, descriptors = state.value["rings"], state.descriptors
                control.ask("hold", epoch=1, mode="memfd", rings=rings, descriptors=descriptors)
                with ThreadPoolExecutor(1) as beside:
                    taken = beside.submit(control.ask, "commit", epoch=1)
                    old.ask("give", epoch=1)
                    taken.result()
                old.kill()
                control.ask("orphaned", epoch=1)
                control.ask("handover", epoch=1)
                yield new
        finally:
            for descriptor in state.descriptors:
                os.close(descriptor)

    @property
    def control(self) -> Path:
        """The control socket of the instance to start next."""
        return self.directory / "nf.sock"


class Peer:
    """A program of peers.py."""

    def __init__(self, command: Sequence[str], lines: Sequence[str]) -> None:
        self._lines = "".join(f"{line}\n" for line in lines)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", line

    def result(self) -> Any:
        """Wait for its end; return its report."""
        said, _ = self._process.communicate(self._lines, timeout=60)
        assert self._process.returncode == 0, said
        return json.loads(said)


class Nf:
    """A running instance, whose control socket is ``wire.control``; leaving the context ends it."""

    def __init__(self, wire: Wire, command: Sequence[str]) -> None:
        self.socket = wire.control
        self.log = wire.directory / "nf.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*wire.enter("nf"), *command], stderr=log, stdout=log, env=environment())
        self._client: socket.socket | None = None
        self._await_up()

    def _await_up(self) -> None:
        end = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < end, self.said()
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                client.close()
                time.sleep(0.005)
            else:
                client.settimeout(30)
                self._client = client
                return
        raise AssertionError(self.said())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._client.close()
        self.kill()

    def kill(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait(timeout=30)

    def said(self) -> str:
        """Return its whole output."""
        return self.log.read_text()

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Send a request on the control socket; return the answer."""
        assert self._client is not None
        self._client.sendall(json.dumps({"do": verb, **arguments}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = self._client.recv(1 << 16)
            assert piece, self.said()
            answer += piece
        parsed = json.loads(answer)
        assert "ok" in parsed, parsed
        return parsed["ok"]

    @property
    def pid(self) -> int:
        """Return the PID of the instance itself: nsenter forks when it enters a PID namespace."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else self.process.pid

    def cpu_ns(self) -> int:
        """Return the CPU time of all threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(timeout=30)
