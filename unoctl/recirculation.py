"""Follows a packet that a datapath recirculates.

ofproto/trace goes on by itself only after connection tracking. After a hash (select groups, bonds) or an MPLS pop it
stops at ``recirc(ID)``; asking for a packet with that id continues it, as long as Open vSwitch still knows the id:
about half a second after the trace that made it, or for good where traffic uses it. So an id that has gone is made
again by repeating the trace before.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from server.errors import ToolError
from unoctl.switch_probe import SwitchProbe
from unoctl.trace_text import Translation, parse

_ID = re.compile(r"\brecirc\((0x[0-9a-f]+)\)")
_HASH_MASK = re.compile(r"\bdp_hash=0x[0-9a-f]+/(0x[0-9a-f]+)")
_HASHED_WHOLE = re.compile(r"\bdp_hash=0x[0-9a-f]+(?![/0-9a-f])")
_FORGOTTEN = "No recirculation context"
# On a busy machine half a second may pass between two calls, again and again.
_ATTEMPTS = 20
# The most hash values that are tried for one group; more are sampled evenly.
MAX_HASHES = 64


@dataclass(frozen=True)
class Variant:
    """A continuation that ``share`` of ``shares`` hash values lead to; ``ask`` repeats its trace."""

    translation: Translation
    share: int
    shares: int
    ask: Callable[[], list[Translation]]


class Continuation:
    """The trace behind one ``recirc(ID)``.

    Args:
        probe: the switch.
        before: repeats the translation that printed the id.
        identity: the id, as that translation printed it.
        actions: that translation's data-path actions.
        ofport: where the packet came in.
        metadata: further fields of the packet, in flow syntax, each with a comma behind.
        data: the packet.
    """

    def __init__(
        self,
        probe: SwitchProbe,
        before: Callable[[], Translation],
        identity: int,
        actions: str,
        ofport: int,
        metadata: str,
        data: bytes,
    ) -> None:
        self._probe = probe
        self._before = before
        self._identity = identity
        self._ordinal = _identities(actions).index(identity)
        self._ofport = ofport
        self._metadata = metadata
        self._data = data

    def plain(self) -> Variant:
        """The only continuation, where no hash decides.

        Raises:
            ToolError: Open vSwitch does not continue it.
        """
        return self._variant(None, 1, 1)

    def by_hash(self) -> list[Variant]:
        """Every continuation that some hash value leads to, with its share.

        Raises:
            ToolError: Open vSwitch does not continue it.
        """
        first = self._variant(1, 1, 1)
        count = _hash_values(first.translation)
        if count == 1:
            return [first]
        # Zero means "not hashed yet", so the values are taken from 1 on.
        values = range(1, count + 1, max(count // MAX_HASHES, 1))
        found: dict[str, list[int]] = {}
        for value in values:
            found.setdefault(_signature(self._ask(value)[0]), []).append(value)
        return [self._variant(same[0], len(same), len(values)) for same in found.values()]

    def _variant(self, value: int | None, share: int, shares: int) -> Variant:
        def ask() -> list[Translation]:
            return self._ask(value)

        return Variant(ask()[0], share, shares, ask)

    def _ask(self, value: int | None) -> list[Translation]:
        for _ in range(_ATTEMPTS):
            sections = parse(self._probe.trace(self._ofport, self._data, self._recirculated(value)))
            if sections[0].failure != _FORGOTTEN:
                return sections
            identities = _identities(self._before().actions or "")
            if self._ordinal >= len(identities):
                name = self._probe.name
                raise ToolError(f"switch {name}: its rules changed while the packet was traced; trace again")
            self._identity = identities[self._ordinal]
        raise ToolError(f"switch {self._probe.name} forgets how to continue sooner than it can be asked; trace again")

    def _recirculated(self, value: int | None) -> str:
        hashed = "" if value is None else f"dp_hash={value:#x},"
        return f"recirc_id={self._identity:#x},{hashed}{self._metadata}"


def _identities(actions: str) -> list[int]:
    return [int(identity, 0) for identity in _ID.findall(actions)]


def _hash_values(translation: Translation) -> int:
    """How many values of the hash the rules tell apart, from the mask in the megaflow."""
    if match := _HASH_MASK.search(translation.megaflow):
        return int(match.group(1), 0) + 1
    return MAX_HASHES if _HASHED_WHOLE.search(translation.megaflow) else 1


def _signature(translation: Translation) -> str:
    """What is the same for two continuations that do the same; ids are new each time."""
    steps = "\n".join(step.text for step in translation.steps if step.kind != "detail")
    return _ID.sub("recirc", translation.actions or "") + "\n" + steps
