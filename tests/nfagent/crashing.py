"""An agent as a separate process that can be killed; its switches are a file.

python -m tests.nfagent.crashing AGENT.TOML PORTS.JSON [MOMENT:EFFECT]

With the last argument it kills itself ``before`` or ``after`` an effect of a migration.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nfagent.agent import Agent
from nfagent.config import AgentConfig
from nfagent.migrate.journal import Journal
from nfagent.migrate.switching import Moved
from nfagent.model import InstancePort
from tests.nfagent.world import FakeMarking, WithoutSwitches


class FileWiring(WithoutSwitches):
    """Ports in a file, so that they outlive the agent like those of switches."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self, port: InstancePort, location: str, interface: str, owner: str) -> None:
        """See `nfagent.protocols.Wiring`."""
        assert owner
        self._place(port, location, interface)

    def _place(self, port: InstancePort, location: str, interface: str) -> None:
        self._change(lambda homes: homes.update({str(port.number): [location, interface]}))

    def disconnect(self, port: InstancePort) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._change(lambda homes: homes.pop(str(port.number), None))

    # ---- moves, as `nfagent.migrate.switching.Switching`: a port is where it was flipped to

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""

    def abort(self, port: InstancePort) -> None:
        """See `Switching`."""

    def flip(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""
        self._place(port, location, interface)

    def quiesce(self) -> None:
        """See `Switching`."""

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> FakeMarking:
        """See `Switching`."""
        assert epoch
        assert len(bytes.fromhex(secret)) == 32
        assert all(port.number in self._homes() for port, _ in ports)
        return FakeMarking(len(ports), lambda first: None)

    def finish(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""
        self._place(port, location, interface)

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        """See `nfagent.protocols.Wiring`."""
        assert owner
        return self._homes()

    def _homes(self) -> dict[int, tuple[str, str]]:
        homes = json.loads(self._path.read_text()) if self._path.exists() else {}
        return {int(number): (home[0], home[1]) for number, home in homes.items()}

    def _change(self, change: Callable[[dict[str, list[str]]], object]) -> None:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            homes = json.loads(self._path.read_text()) if self._path.exists() else {}
            change(homes)
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(homes))
            draft.replace(self._path)


def die_at(moment: str, last: str) -> None:
    """Kill this process with SIGKILL at that moment."""
    timed = Journal.timed

    def die(now: str, name: str) -> None:
        if (now, name) == (moment, last):
            os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def wrapped(self: Journal, effect: str) -> Iterator[None]:
        die("before", effect)
        with timed(self, effect):
            yield
        die("after", effect)

    Journal.timed = wrapped


def main() -> None:
    path = Path(sys.argv[1])
    config = AgentConfig.load(path)
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if len(sys.argv) > 3:
        die_at(*sys.argv[3].split(":"))
    wiring = FileWiring(Path(sys.argv[2]))
    agent = Agent(config, config.load_server(path), wiring, wiring)
    print(agent.addresses[1], flush=True)
    signal.sigwait(signals)
    agent.stop()


if __name__ == "__main__":
    main()
