"""An agent as a process of its own that can be killed; its switches are a file.

python -m tests.nfagent.crashing AGENT.TOML PORTS.JSON
"""

import fcntl
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from nfagent.agent import Agent
from nfagent.config import AgentConfig
from nfagent.model import Port


class FileWiring:
    """Ports in a file, so that they outlive the agent as those of switches do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self, port: Port, location: str, interface: str) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._change(lambda homes: homes.update({str(port.number): [location, interface]}))

    def disconnect(self, port: Port) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._change(lambda homes: homes.pop(str(port.number), None))

    def homes(self) -> dict[int, tuple[str, str]]:
        """See `nfagent.protocols.Wiring`."""
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


def main() -> None:
    path = Path(sys.argv[1])
    config = AgentConfig.load(path)
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    agent = Agent(config, config.load_server(path), FileWiring(Path(sys.argv[2])))
    print(agent.addresses[1], flush=True)
    signal.sigwait(signals)
    agent.stop()


if __name__ == "__main__":
    main()
