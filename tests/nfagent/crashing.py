"""An agent as a separate process that can be killed; a file replaces its switches.

python -m tests.nfagent.crashing AGENT.TOML PORTS.JSON
"""

import fcntl
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import MagicMock

from nfagent.agent import Agent
from nfagent.config import AgentConfig
from nfagent.migrate.switching import Switching
from nfagent.model import InstancePort


class FileWiring:
    """Ports in a file, which outlive the agent like those of switches."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self, ports: Sequence[tuple[InstancePort, str]], location: str, owner: str) -> None:
        """See `nfagent.protocols.Wiring`."""
        assert owner
        for port, interface in ports:
            self._change(lambda homes, at=(port.number, interface): homes.update({str(at[0]): [location, at[1]]}))

    def disconnect(self, port: InstancePort) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._change(lambda homes: homes.pop(str(port.number), None))

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        """See `nfagent.protocols.Wiring`."""
        assert owner
        homes = json.loads(self._path.read_text()) if self._path.exists() else {}
        return {int(number): (home[0], home[1]) for number, home in homes.items()}

    def carried(self, location: str) -> dict[str, set[int]]:
        """See `nfagent.protocols.Wiring`."""
        homes = self.homes("anybody").items()
        return {interface: {number} for number, (place, interface) in homes if place == location}

    def _change(self, change: Callable[[dict[str, list[str]]], object]) -> None:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            homes = json.loads(self._path.read_text()) if self._path.exists() else {}
            change(homes)
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(homes))
            draft.replace(self._path)


def main() -> None:
    path = Path(sys.argv[1])
    config = AgentConfig.load(path)
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    agent = Agent(config, config.load_server(path), FileWiring(Path(sys.argv[2])), MagicMock(spec=Switching))
    print(agent.addresses[1], flush=True)
    signal.sigwait(signals)
    agent.stop()


if __name__ == "__main__":
    main()
