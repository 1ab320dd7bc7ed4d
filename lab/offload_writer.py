"""A writer of offloaded flows, as a network function is one."""

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

INSTANCE = "0123456789abcdef0123456789abcdef"
"""The writer's identity, unless it says another one."""

_LIMIT_S = 30.0
_ALIVE_S = 0.5

Event = dict[str, Any]


class Writer:
    """A connection to oneswitchd's offload socket.

    Args:
        address: ``unix:PATH``.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_LIMIT_S)
        self._socket.connect(address.removeprefix("unix:"))
        self._rest = b""
        self.events: list[Event] = []
        self.carried: dict[int, tuple[int, int]] = {}
        """The packets and bytes of each counter, as told in the events that :meth:`next` has returned or dropped."""

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *lines: Event | str) -> None:
        """Send lines in one write."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self._socket.sendall("".join(f"{text}\n" for text in texts).encode())

    def hello(self, port: int, owner: str | None = None, instance: str = INSTANCE, epoch: int = 1) -> Event:
        """Say hello; return the answer."""
        self.send({"hello": {"port": port, "owner": owner, "instance": instance, "epoch": epoch}})
        return self.next("welcome", "error")

    def next(self, *names: str) -> Event:
        """Return the next event with one of these names, dropping those before it, and stay alive meanwhile."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            while self.events:
                event = self.events.pop(0)
                self.carried |= {counter: (packets, octets) for counter, packets, octets in event.get("carried", [])}
                if event.keys() & set(names):
                    return event
            assert time.monotonic() < deadline, f"no {names} within {_LIMIT_S} s"
            if not select.select([self._socket], [], [], _ALIVE_S)[0]:
                self.send({"alive": None})
                continue
            data = self._socket.recv(1 << 16)
            assert data, f"closed before {names}"
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.events += [json.loads(line) for line in lines]

    def is_closed(self) -> bool:
        """Tell whether the server closes the connection, after its last events."""
        while data := self._socket.recv(1 << 16):
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.events += [json.loads(line) for line in lines]
        return True

    def listed(self) -> list[list[Any]]:
        """Ask for the rules of the port; return them by number."""
        self.send({"list": None})
        rules: list[list[Any]] = []
        while True:
            event = self.next("listed")
            rules += event["listed"]
            if not event["more"]:
                return sorted(rules)

    def install(self, rule: int, flow: list[Any], target: int, clients: str = "source", counter: int = 0) -> None:
        """Install a rule and wait until it carries."""
        self.send({"install": [rule, *flow, target, clients, counter]})
        assert self.next("installed", "refused") == {"installed": [rule]}

    def remove(self, rule: int) -> None:
        """Remove a rule; return once no packet leaves by it any more."""
        self.send({"remove": rule})
        while rule not in self.next("effective")["effective"]:
            pass


@contextmanager
def writing(address: str, port: int, **hello: Any) -> Iterator[Writer]:
    """Connect a writer for a port."""
    with Writer(address) as writer:
        answer = writer.hello(port, **hello)
        assert "welcome" in answer, answer
        yield writer
