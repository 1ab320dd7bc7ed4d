"""Simulated network functions: they migrate as in nfs/README.md, with state in real memfds.

Packets are not simulated: each function that may send counts in its state instead.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nfagent.errors import ControlRefusedError

_SENDING = ("running", "prepared", "relayed-to")
_ALWAYS = ("relayed", "release")
_PROGRESS_S = 5.0


@dataclass
class Arena:
    """State or rings behind a memfd, identified by its inode."""

    descriptor: int
    inode: int
    count: int = 0
    ended: bool = False
    given: bool = False
    reader: "Nf | None" = None

    @classmethod
    def make(cls) -> "Arena":
        """Make an empty arena."""
        descriptor = os.memfd_create("fake")
        return cls(descriptor, os.fstat(descriptor).st_ino)


@dataclass
class Request:
    """A line on a control socket, with its descriptors."""

    verb: str
    arguments: dict[str, Any]
    descriptors: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close the descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())


Answered = tuple[dict[str, Any], list[int]]


class Nf:
    """An instance's process as seen through its control socket.

    Args:
        arenas: of this machine, by inode.
        connect: finds the function that listens at an address for copied state.
        marked: counts the markers, from a number on, that have reached a function.
        wait: lets time pass.
        is_stuck: tells whether another function reads nothing now.
        is_stalled: tells whether a switch between this function and the others is stalled.
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        hold: bool,
        adopted: Arena | None,
        arenas: dict[int, Arena],
        connect: Callable[[str], "Nf | None"],
        marked: Callable[[int, int], int],
        wait: Callable[[float], None],
        is_stuck: "Callable[[Nf], bool]",
        is_stalled: Callable[[], bool],
    ) -> None:
        self.config, self._arenas, self._connect, self._marked = config, arenas, connect, marked
        self._wait, self._is_stuck, self._is_stalled = wait, is_stuck, is_stalled
        self.arena = adopted or self._arena()
        self.phase = "waiting" if hold else "running"
        self.epoch = 0
        self.answers: dict[str, dict[str, Any]] = {}
        self.rings: Arena | None = None
        self.pending: Arena | None = None
        self.listens: str | None = None
        self.stream: Nf | None = None
        self.source: Nf | None = None
        self.is_offered = False
        self.is_orphaned = False
        self.is_alive = True

    def _arena(self) -> Arena:
        made = Arena.make()
        self._arenas[made.inode] = made
        return made

    @property
    def may_send(self) -> bool:
        """Tell whether the function may send packets."""
        return self.is_alive and self.phase in _SENDING

    @property
    def processes(self) -> bool:
        """Tell whether packets change its state: a copy gets none before the old instance relays them."""
        return self.may_send and not (
            self.phase == "relayed-to" and self.source is not None and self.source.phase == "offered"
        )

    def answer(self, request: Request) -> Answered:
        """Handle a request; raise `ControlRefusedError` to refuse it."""
        verb, arguments = request.verb, request.arguments
        if self._source_ended():
            self.hand_over_by_itself()
        if verb == "orphaned":
            if arguments["epoch"] != self.epoch:
                raise ControlRefusedError(verb, "epoch", f"this is epoch {self.epoch}")
            self.is_orphaned = True
            self.hand_over_by_itself()
            return {"epoch": arguments["epoch"]}, []
        plain = getattr(self, f"_say_{verb}", None)
        if plain is not None:
            return plain(arguments), []
        known = getattr(self, f"_do_{verb}", None)
        if known is None:
            raise ControlRefusedError(verb, "verb-unknown", f"no verb {verb!r}")
        self._enter(verb, arguments["epoch"])
        if verb not in self.answers or verb in _ALWAYS:
            self.answers[verb] = known(request)
        beside = [self.arena, self.rings] if verb == "prepare" and self.phase != "running" else []
        return self.answers[verb], [os.dup(each.descriptor) for each in beside if each is not None]

    def _enter(self, verb: str, epoch: int) -> None:
        if epoch < self.epoch:
            raise ControlRefusedError(verb, "epoch", f"epoch {epoch} is over; this is epoch {self.epoch}")
        if epoch > self.epoch:
            if (verb, self.phase) not in (("prepare", "running"), ("hold", "waiting"), ("abort", "waiting")):
                raise ControlRefusedError(verb, "epoch", f"epoch {epoch}, while epoch {self.epoch} is {self.phase}")
            self.epoch, self.answers = epoch, {}

    def _expect(self, verb: str, *phases: str) -> None:
        if self.phase not in phases:
            raise ControlRefusedError(verb, "out-of-turn", f"{verb!r} while this instance is {self.phase}")

    # ---- verbs of every instance

    def _say_status(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"migration": {"epoch": self.epoch, "phase": self.phase}} if self.epoch else {}

    def _say_counters(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"flows": self.arena.count}

    def _say_config(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"config": self.config}

    def _say_configure(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._expect("configure", "running")
        self.config = arguments["config"]
        return {}

    # ---- verbs of the source

    def _do_prepare(self, _: Request) -> dict[str, Any]:
        self._expect("prepare", "running")
        self.phase, self.rings = "prepared", self._arena()
        return {"bytes": 4096, "config": self.config, "rings": {"queues": 1, "words": 512}, "hand_over": 3}

    def _do_precopy(self, request: Request) -> dict[str, Any]:
        self._expect("precopy", "prepared")
        self.stream = self._connect(request.arguments["to"])
        if self.stream is None:
            raise ControlRefusedError("precopy", "peer", "cannot connect")
        self._await_reader("precopy", self.stream)
        self.stream.source = self
        return {"rounds": 1, "bytes": 4096, "left": 0}

    def _do_mark(self, _: Request) -> dict[str, Any]:
        self._expect("mark", "prepared")
        return {"markers": 1}

    def _do_give(self, _: Request) -> dict[str, Any]:
        """Hand over: the new instance takes over at once if it can, for its ``commit`` waits for this."""
        self._expect("give", "prepared")
        if self.stream is None:
            assert self.rings is not None
            self.rings.given, self.phase = True, "given"
            if self.rings.reader is not None and not self._is_stuck(self.rings.reader):
                self.rings.reader.take()
            return {"freeze_us": 300, "bytes": 0}
        self.phase = "frozen"
        if not self.stream.is_alive:
            raise ControlRefusedError("give", "peer", "the new instance closed the connection")
        self.stream.arena.count = self.arena.count
        self.stream.pending, self.stream.is_offered, self.phase = self.stream.arena, True, "offered"
        self._await_reader("give", self.stream)  # hangs just before it takes over
        self.stream.take()
        self.phase = "given"
        return {"freeze_us": 300, "bytes": 8}

    def take(self) -> None:
        """Take over, once the right to send was given."""
        if self.is_alive and self.phase == "holding" and self.pending is not None:
            self.arena, self.phase = self.pending, "relayed-to"
            self.answers["commit"] = {"unpassed": "a marker is missing" if self._is_stalled() else None}

    def _await_reader(self, verb: str, reader: "Nf") -> None:
        if self._is_stuck(reader):
            self._wait(_PROGRESS_S)
        if self._is_stuck(reader):
            raise ControlRefusedError(verb, "peer", "the new instance does not read")

    def _do_relayed(self, request: Request) -> dict[str, Any]:
        self._expect("relayed", "given")
        self._await_markers("relayed", request.arguments)
        return {"relayed": [0]}

    def _do_drain(self, request: Request) -> dict[str, Any]:
        self._expect("drain", "given")
        self._await_markers("drain", request.arguments)
        if self.stream is not None and not self.stream.is_alive:
            raise ControlRefusedError("drain", "peer", "the relay to the new instance broke off")
        self.phase = "gone"
        if self.rings is not None:
            self.rings.ended = True
        reader = self.stream or (self.rings and self.rings.reader)
        if reader is not None and not self._is_stuck(reader):
            reader.hand_over_by_itself()
        return {"relayed": [0]}

    def _await_markers(self, verb: str, arguments: dict[str, Any]) -> None:
        if self._marked(arguments["first"], arguments["paths"]) < arguments["paths"]:
            self._wait(arguments.get("timeout_ms", 10_000) / 1000)
            raise ControlRefusedError(verb, "timeout", "not all markers arrived; send them again and ask again")

    def _do_thaw(self, _: Request) -> dict[str, Any]:
        self._expect("thaw", "prepared", "frozen", "offered")
        self.stream = None
        self.phase = "running"
        return {}

    # ---- verbs of the target

    def _do_hold(self, request: Request) -> dict[str, Any]:
        self._expect("hold", "waiting")
        if request.arguments["mode"] == "memfd":
            if len(request.descriptors) != 2:
                raise ControlRefusedError("hold", "malformed", "descriptors are missing")
            state, rings = (self._arenas[os.fstat(each).st_ino] for each in request.descriptors)
            self.pending, self.rings = state, rings
            rings.reader, self.phase = self, "holding"
            return {}
        self.phase, self.listens = "holding", request.arguments["listen"]
        return {"address": self.listens}

    def _do_marked(self, _: Request) -> dict[str, Any]:
        self._expect("marked", "holding")
        return {}

    def _do_commit(self, request: Request) -> dict[str, Any]:
        if self.phase in ("offered", "given"):
            self.phase = "given"
            return {}
        self._expect("commit", "holding", "relayed-to")
        if self.phase == "holding":
            is_given = self.rings.given if self.rings is not None else self.is_offered
            if self.pending is None or not (is_given or request.arguments.get("given")):
                self._wait(_PROGRESS_S)
                raise ControlRefusedError("commit", "timeout", "the right to send was not given")
            self.take()
            return self.answers.pop("commit")
        return {"unpassed": None}

    def _do_release(self, _: Request) -> dict[str, Any]:
        self._expect("release", "relayed-to")
        return {}

    def _do_handover(self, request: Request) -> dict[str, Any]:
        self._expect("handover", "relayed-to")
        if not (self.is_orphaned or (self.rings is not None and self.rings.ended) or self._source_ended()):
            self._wait(request.arguments.get("timeout_ms", 10_000) / 1000)
            raise ControlRefusedError("handover", "timeout", "not every queue has ended")
        self.phase = "running"
        return {"relayed": 0, "orphaned": self.is_orphaned}

    def hand_over_by_itself(self) -> None:
        """Hand over as soon as nothing older can follow; the request gets its answer later."""
        if self.phase == "relayed-to" and self.is_alive:
            self.answers["handover"] = self._do_handover(Request("handover", {}))

    def _source_ended(self) -> bool:
        return self.source is not None and (not self.source.is_alive or self.source.phase == "gone")

    def _do_abort(self, _: Request) -> dict[str, Any]:
        self._expect("abort", "waiting", "holding")
        self.phase = "gone"
        return {}


class Keeper:
    """A process that keeps descriptors; see `nfagent.migrate.keeper`."""

    def __init__(self) -> None:
        self.note: Any = None
        self.kept: list[int] = []
        self.is_alive = True

    def answer(self, request: Request) -> Answered:
        """Keep descriptors or return them."""
        if request.verb == "put":
            self.close()
            self.kept, self.note = [os.dup(each) for each in request.descriptors], request.arguments["note"]
            return {}, []
        return {"note": self.note}, [os.dup(each) for each in self.kept]

    def close(self) -> None:
        """Close the kept descriptors."""
        while self.kept:
            os.close(self.kept.pop())


def inodes(descriptors: Sequence[int]) -> list[int]:
    """Return the inodes behind descriptors."""
    return [os.fstat(each).st_ino for each in descriptors]
