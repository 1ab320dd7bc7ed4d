"""A network function `l7lb` that moves between two places in the middle host, by the verbs of `nf run`.

| interface | where |
|---|---|
| ``m0``, ``m1`` | the wires toward the client and the servers, each in a bridge of its own |
| ``front0``, ``back0``; ``front1``, ``back1`` | the ports of the instance in place 0; in place 1, with the same MACs |
| ``to-front0``, ... | their other ends, in the bridges, which send the MAC's frames to one place |
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from lab.web_path.balancers import Running, Settings, l7lb
from lab.web_path.path import BACK, CLIENT, FRONT, MIDDLE, ORIGINS, OWN6, SERVERS, VIP6, WebPath
from nfagent.control import Control
from nfagent.migrate.switching import marker

_MACS = {"front": "02:00:00:00:0f:00", "back": "02:00:00:00:0b:00"}
_WIRES = {"front": FRONT, "back": BACK}
_TIMEOUT_S = 30.0
_SEND = """
import socket, sys
for port, frame in zip(sys.argv[1::2], sys.argv[2::2]):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((port, 0))
        sender.send(bytes.fromhex(frame))
"""


class _Process:
    """An instance in a place."""

    def __init__(self, path: WebPath, home: Path, settings: Settings, epoch: int, place: int, *options: str) -> None:
        name = f"l7lb-{epoch}"
        self.place = place
        self._control = Control(home / f"{name}.sock")
        self._life = contextlib.ExitStack()
        ports = [f"{side}{place}" for side in _MACS]
        self.running: Running = self._life.enter_context(
            l7lb(path, home, ORIGINS, settings=settings, name=name, ports=ports, options=options)
        )

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        return self._control.ask(verb, timeout_s=_TIMEOUT_S, **arguments)

    def prepare(self, epoch: int, secret: str) -> tuple[Any, list[int]]:
        """Return the sizes of the rings, and the descriptors of the state and the rings."""
        answer = self._control.exchange("prepare", timeout_s=_TIMEOUT_S, epoch=epoch, secret=secret)
        return answer.value["rings"], answer.descriptors

    def close(self) -> None:
        self._life.close()


class MovingInstance:
    """A running instance; leaving the context ends it."""

    def __init__(self, path: WebPath, home: Path, settings: Settings | None = None, *, workers: int = 1) -> None:
        self._path, self._home, self._settings = path, home, settings or Settings()
        self._options = [f"--workers={workers}"]
        self._epoch = 0
        self.longest_freeze_s = 0.0
        self._place_bridges()
        self._active = _Process(path, home, self._settings, 0, 0, *self._options)
        self._run(self._steer(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._active.close()

    @property
    def pid(self) -> int:
        """Return the id of the process that has the state now."""
        return self._active.running.pid

    def counters(self) -> dict[str, float]:
        """Return the instance's counters."""
        return self._active.ask("counters")

    def move(self, how: str) -> None:
        """Move to a new process in the other place, in the mode ``memfd`` or ``copy``; end the old one."""
        self._epoch += 1
        epoch, secret = {"epoch": self._epoch}, secrets.token_hex(32)
        old, new = (
            self._active,
            _Process(
                self._path, self._home, self._settings, self._epoch, 1 - self._active.place, "--hold", *self._options
            ),
        )
        self._active = new
        with contextlib.closing(old), _prepared(old, self._epoch, secret) as (rings, descriptors):
            if how == "memfd":
                new.ask("hold", mode="memfd", rings=rings, descriptors=descriptors, **epoch)
            else:
                listen = f"unix:{self._home}/state-{self._epoch}.sock"
                held = new.ask("hold", mode="copy", secret=secret, listen=listen, rings=rings, **epoch)
                old.ask("precopy", to=held["address"], fit_bytes=1 << 16, **epoch)
            with ThreadPoolExecutor(1) as beside:
                taken = beside.submit(new.ask, "commit", **epoch)
                given = old.ask("give", **epoch)
                taken.result()
            self.longest_freeze_s = max(self.longest_freeze_s, given["freeze_us"] / 1e6)
            self._flip(old.place, new.place, secret)
            drained = old.ask("drain", paths=len(_MACS), **epoch)
            assert drained["lost"] == 0, drained
            new.ask("handover", **epoch)

    def _flip(self, old: int, new: int, secret: str) -> None:
        """Send all frames to the new place from now on, and a marker after the last ones to the old place."""
        last = [
            f"to-{side}{old} {marker(mac, secret, self._epoch, index).hex()}"
            for index, (side, mac) in enumerate(_MACS.items())
        ]
        self._run([*self._steer(new), f"{sys.executable} -c '{_SEND}' {' '.join(last)}"])

    def _steer(self, place: int) -> list[str]:
        return [f"bridge fdb replace {mac} dev to-{side}{place} master static" for side, mac in _MACS.items()]

    def _place_bridges(self) -> None:
        script = ["sysctl -qw net.ipv6.conf.default.disable_ipv6=1"]
        for side, mac in _MACS.items():
            script += [f"ip link add {side} type bridge", f"ip link set {side} up"]
            script.append(f"ip link set {_WIRES[side]} master {side}")
            for place in (0, 1):
                port, end = f"{side}{place}", f"to-{side}{place}"
                script.append(f"ip link add {end} type veth peer name {port} address {mac}")
                script += [f"ethtool -K {each} tx off tso off gso off gro off" for each in (port, end)]
                script += [f"ip link set {end} master {side} up", f"ip link set {port} up"]
                # The other place must not get copies of frames, nor frames of the instance here.
                script.append(f"bridge link set dev {end} learning off flood off mcast_flood off isolated on")
        self._run(script)
        # Neighbour solicitations are multicast, which the bridges would copy to both places.
        for host, address, side in ((CLIENT, VIP6, "front"), (SERVERS, OWN6[1], "back")):
            neighbour = (address, "lladdr", _MACS[side], "dev", "eth0")
            self._path.run(host, "ip", "-6", "neighbour", "replace", *neighbour)

    def _run(self, lines: list[str]) -> None:
        self._path.run(MIDDLE, "sh", "-ec", "\n".join(lines))


@contextlib.contextmanager
def _prepared(old: _Process, epoch: int, secret: str) -> Iterator[tuple[Any, list[int]]]:
    """Prepare a move; close the descriptors at the end."""
    rings, descriptors = old.prepare(epoch, secret)
    try:
        yield rings, descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
