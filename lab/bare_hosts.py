"""Hosts without switches: network namespaces whose interfaces the caller creates with lines for ``ip``.

They end with the object, along with the programs in them.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.namespaces import NETNS_DIRECTORY, enter_command, has_user_namespace, unshare_command
from lab.programs import environment
from lab.server import HostProcess

_KEEPER = """
import json, sys
from lab import namespaces
names, lines = json.loads(sys.argv[1])
namespaces.private_run()
namespaces.add(names)
namespaces.ip_batch(lines)
print("ready", flush=True)
sys.stdin.read()
"""


class BareHosts:
    """Hosts with these names; the lines for ``ip`` run once, when all exist.

    Raises:
        NamespacesRefusedError: this user may not create namespaces.
        RuntimeError: a line failed; ``ip``'s message is on standard error.
    """

    def __init__(self, names: Sequence[str], lines: Sequence[str]) -> None:
        command = unshare_command()
        self._user_namespace = has_user_namespace(command)
        self._started: list[HostProcess] = []
        self._keeper = subprocess.Popen(
            [*command, sys.executable, "-c", _KEEPER, json.dumps([names, lines])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            self.close()
            raise RuntimeError(f"could not create the hosts {', '.join(names)}")
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text()
        self._inside = int(children.split()[0])

    def close(self) -> None:
        """End every program in the hosts, and the hosts."""
        self._keeper.communicate("")
        for process in self._started:
            with process:  # closes its pipes and waits
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def enter(self, host: str) -> list[str]:
        """Return the command that enters a host's namespaces; the program to run follows it."""
        netns = f"/proc/{self._inside}/root{NETNS_DIRECTORY}/{host}"
        return enter_command(self._inside, netns, user_namespace=self._user_namespace)

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> HostProcess:
        """Start a program inside a host; the options are those of `subprocess.Popen`."""
        process = HostProcess([*self.enter(host), *argv], env=environment(), **options)
        self._started.append(process)
        return process

    def run(self, host: str, *command: str, check: bool = True, timeout_s: float = 60) -> str:
        """Run a program inside a host to its end; return its output.

        Raises:
            RuntimeError: it failed, and `check` is set.
        """
        done = subprocess.run(
            [*self.enter(host), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            env=environment(),
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} in {host} failed with {done.returncode}: {done.stdout}")
        return done.stdout
