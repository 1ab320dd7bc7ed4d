"""A network function that touches no packet and speaks the control protocol of nfs/README.md, migration included.

Its state is a number, which the verb ``count`` raises while it is its own; the schema is what its configuration says is
its ``schema``. Its configuration may also hold ``refuse``: it then refuses to be configured so (``start``: to start),
``slow_s``: it is ready only then, ``slow_commit_s``, ``lost_markers``: so often has ``relayed`` to be asked,
``hand_over``: its version of that, or ``unconfirmed``: a copy does not confirm that it has taken over.
"""

import argparse
import array
import json
import mmap
import os
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

_BYTES = 4096
_GIVEN, _BACK = 1, 2  # of the word in the rings
_GIVEN_S = 10.0


class RefusalError(Exception):
    """An error answer."""

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(detail)


class Shared:
    """A number in memory shared by descriptor."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("toy") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, _BYTES)
        self._memory = mmap.mmap(self.descriptor, _BYTES)

    def get(self) -> int:
        """Return the number."""
        return int.from_bytes(self._memory[:8], "little")

    def set(self, number: int) -> None:
        """Set the number."""
        self._memory[:8] = number.to_bytes(8, "little")


class Toy:
    """The instance."""

    def __init__(self, config: dict[str, Any], ports: list[str], *, hold: bool, arena: int | None) -> None:
        self.settings, self.ports = config, ports
        self.state = Shared(arena)
        self.phase = "waiting" if hold else "running"
        self.epoch = 0
        self.answers: dict[str, dict[str, Any]] = {}
        self.rings = Shared()
        self.secret = b""
        self.peer: socket.socket | None = None
        self.pending: Shared | None = None
        self.decision = Shared()
        self.markers = self.released = self.asked = self.tried = 0
        self.repaired = False
        self.fence: int | None = None

    def answer(self, request: dict[str, Any], received: list[int]) -> tuple[dict[str, Any], list[int]]:
        """Return the answer and its descriptors."""
        try:
            verb = str(request.get("do"))
            plain = getattr(self, f"say_{verb}", None)
            if plain is not None:
                return {"ok": plain(request)}, []
            if verb == "orphaned":
                return {"ok": {"epoch": request["epoch"]}}, []
            known = getattr(self, f"do_{verb}", None)
            if known is None:
                raise RefusalError("verb-unknown", f"no verb {verb!r}")
            return self._migrate(verb, known, request, received)
        except RefusalError as refusal:
            return {"error": {"code": refusal.code, "detail": refusal.detail}}, []

    def _migrate(
        self, verb: str, known: Any, request: dict[str, Any], received: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        epoch = request["epoch"]
        if epoch < self.epoch:
            raise RefusalError("epoch", f"epoch {epoch} is over; this is epoch {self.epoch}")
        if epoch > self.epoch:
            if (verb, self.phase) not in (("prepare", "running"), ("hold", "waiting"), ("abort", "waiting")):
                raise RefusalError("epoch", f"{verb!r} of epoch {epoch}, while epoch {self.epoch} is {self.phase}")
            self.epoch, self.answers = epoch, {}
        if verb not in self.answers or verb in ("relayed", "release"):
            self.answers[verb] = known(request, received) | {"epoch": epoch}
        beside = [self.state.descriptor, self.rings.descriptor] if verb == "prepare" else []
        return {"ok": self.answers[verb]}, beside

    def _expect(self, verb: str, *phases: str) -> None:
        if self.phase not in phases:
            raise RefusalError("out-of-turn", f"{verb!r} while this instance is {self.phase}")

    # ---- verbs of every instance

    def say_status(self, _: dict[str, Any]) -> dict[str, Any]:
        """See nfs/README.md."""
        ports = [{"name": name} for name in self.ports]
        mode = "run" if self.phase in ("running", "prepared") else "hold"
        found: dict[str, Any] = {"kind": "toy", "mode": mode, "ports": ports, "number": self.state.get()}
        found |= {"released": self.released, "repaired": self.repaired}
        return found | ({"migration": {"epoch": self.epoch, "phase": self.phase}} if self.epoch else {})

    def say_config(self, _: dict[str, Any]) -> dict[str, Any]:
        """See nfs/README.md."""
        return {"config": self.settings}

    def say_counters(self, _: dict[str, Any]) -> dict[str, Any]:
        """See nfs/README.md."""
        return {"flows": self.state.get()}

    def say_count(self, _: dict[str, Any]) -> dict[str, Any]:
        """Increment the number."""
        self._expect("count", "running", "prepared")
        self.state.set(self.state.get() + 1)
        return {"number": self.state.get()}

    def say_configure(self, request: dict[str, Any]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("configure", "running")
        if "refuse" in request["config"]:
            raise RefusalError("configuration", "refuse: it was asked to")
        self.settings = request["config"]
        return {}

    # ---- verbs of the source

    def do_prepare(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("prepare", "running")
        self.secret = _secret(request)
        self.phase = "prepared"
        rings = {"queues": 1, "words": 512, "schema": self.settings.get("schema", 1)}
        told = {"kind": "toy", "schema": "1", "bytes": _BYTES, "config": self.settings, "rings": rings}
        return told | {"sealed": _sealed(self.secret), "hand_over": self.settings.get("hand_over", 3)}

    def do_precopy(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("precopy", "prepared")
        self.peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.peer.connect(request["to"].removeprefix("unix:"))
            self.peer.sendall(self.secret)
        except OSError as error:
            raise RefusalError("peer", f"cannot connect: {error}") from error
        return {"rounds": 1, "bytes": _BYTES, "left": 0}

    def do_mark(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("mark", "prepared")
        assert request["first"] >= 0
        return {"markers": 1}

    def do_give(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("give", "prepared")
        assert request["first"] >= 0
        told = {"freeze_us": 300, "bytes": 0}
        if self.peer is None:
            self.rings.set(_GIVEN)
            self.phase = "given"
            return told
        self.phase = "frozen"
        try:
            self.peer.sendall(self.state.get().to_bytes(8, "little"))
            if not self.peer.recv(1):
                raise RefusalError("peer", "the new instance closed the connection")
        except OSError as error:
            raise RefusalError("peer", str(error)) from error
        if self.settings.get("unconfirmed"):
            self.phase = "offered"
            raise RefusalError("peer", "the new instance does not confirm")
        self.phase = "given"
        return told | {"bytes": 8}

    def do_relayed(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("relayed", "given")
        self.markers += request["paths"]
        self.asked += 1
        if self.asked <= self.settings.get("lost_markers", 0):
            raise RefusalError("timeout", "it was asked to")
        return {"relayed": [0]}

    def do_drain(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("drain", "given")
        self.markers += request["paths"]
        self.phase = "gone"
        return {"relayed": [0]}

    def do_thaw(self, _: dict[str, Any], __: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("thaw", "prepared", "frozen", "offered")
        self.rings.set(_BACK)
        if self.peer is not None:
            self.peer.close()
        self.phase = "running"
        return {}

    # ---- verbs of the target

    def do_hold(self, request: dict[str, Any], received: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("hold", "waiting")
        theirs, ours = request["rings"]["schema"], self.settings.get("schema_here", self.settings.get("schema", 1))
        if theirs != ours:
            raise RefusalError("schema", f"region number: schema {theirs}, expected {ours}")
        self.secret = _secret(request)
        if request["sealed"] != _sealed(self.secret):
            raise RefusalError("sealed", "sealed: expected what the other process answered")
        self.phase = "holding"
        if request["mode"] == "memfd":
            self.pending, self.decision = Shared(received[0]), Shared(received[1])
            return {}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(request["listen"].removeprefix("unix:"))
        listener.listen()
        threading.Thread(target=self._receive, args=[listener], daemon=True).start()
        return {"address": request["listen"]}

    def _receive(self, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        if peer.recv(32, socket.MSG_WAITALL) != self.secret:
            peer.close()
            return
        pending, number = Shared(), peer.recv(8)
        if not number:
            self.decision.set(_BACK)
            return
        pending.set(int.from_bytes(number, "little"))
        self.pending = pending
        self.decision.set(_GIVEN)
        peer.send(b"k")

    def await_given(self) -> None:
        """Wait until the old instance has given the right to send, or kept it."""
        end = time.monotonic() + _GIVEN_S
        while self.phase == "holding" and self.decision.get() not in (_GIVEN, _BACK) and time.monotonic() < end:
            time.sleep(0.001)

    def do_marked(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("marked", "holding")
        assert request["markers"] == 1
        self.tried += 1
        if self.tried <= self.settings.get("lost_trials", 0):
            raise RefusalError("timeout", "only {} arrived")
        return {}

    def do_commit(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("commit", "holding", "offered", "given")
        if self.phase != "holding":
            self.phase = "given"
            return {}
        time.sleep(self.settings.get("slow_commit_s", 0))
        if self.pending is None or self.decision.get() != _GIVEN:
            raise RefusalError("timeout", "the right to send was not given")
        self.state, self.phase = self.pending, "relayed-to"
        self.repaired = request.get("repair", False)
        return {}

    def do_release(self, request: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("release", "relayed-to")
        self.released += self.fence is not None and request.get("reached") == self.fence and request["relayed"] == [0]
        self.fence = request["fence"]
        return {}

    def do_handover(self, _: dict[str, Any], __: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("handover", "relayed-to")
        self.phase = "running"
        return {"relayed": 0, "orphaned": False}

    def do_abort(self, _: dict[str, Any], __: list[int]) -> dict[str, Any]:
        """See nfs/README.md."""
        self._expect("abort", "waiting", "holding")
        self.phase = "gone"
        return {}


def _sealed(secret: bytes) -> str:
    """Return what stands for keys that only another process with the secret can read."""
    return f"sealed-{secret.hex()[::-1]}"


def _secret(request: dict[str, Any]) -> bytes:
    secret = bytes.fromhex(request.get("secret", ""))
    if len(secret) != 32:
        raise RefusalError("malformed", "secret: expected 64 hexadecimal digits")
    return secret


class Server(socketserver.ThreadingUnixStreamServer):
    """The control socket."""

    daemon_threads = True

    def __init__(self, path: str, toy: Toy) -> None:
        self.toy = toy
        self.turn = threading.Lock()
        super().__init__(path, Handler)


class Handler(socketserver.BaseRequestHandler):
    """One client."""

    request: socket.socket

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        line, received = b"", array.array("i")
        while True:
            chunk, beside, _, _ = self.request.recvmsg(1 << 16, socket.CMSG_LEN(32))
            for _level, _kind, data in beside:
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
            line += chunk
            if not chunk:
                return
            if not line.endswith(b"\n"):
                continue
            request = json.loads(line)
            if request.get("do") == "stop":
                self.request.sendall(b'{"ok": {}}\n')
                threading.Thread(target=self.server.shutdown).start()
                return
            if request.get("do") == "commit":
                self.server.toy.await_given()
            with self.server.turn:
                answer, descriptors = self.server.toy.answer(request, list(received))
            socket.send_fds(self.request, [json.dumps(answer).encode() + b"\n"], descriptors)
            line, received = b"", array.array("i")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", action="append", default=[])
    parser.add_argument("--control", required=True)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--arena-fd", type=int)
    parser.add_argument("--rings-fd", type=int)
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    if config.get("refuse") == "start":
        print("toy: refuse: it was asked to", file=sys.stderr)
        return 2
    time.sleep(config.get("slow_s", 0))
    toy = Toy(config, options.port, hold=options.hold, arena=options.arena_fd)
    with Server(options.control, toy) as server:
        server.serve_forever(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
