"""Continues the trace of a packet that a datapath recirculates, after a hash (select groups, bonds) or an MPLS pop.

Tracing a packet with the id of ``recirc(ID)`` continues it. Open vSwitch forgets the id half a second after the trace
that made it, unless traffic uses it; repeating that trace makes a new one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from server.errors import ToolError
from unoctl.trace.model import Pass

_ID = re.compile(r"\brecirc\((0x[0-9a-f]+)\)")
_NEW_EACH_TIME = re.compile(r"\brecirc\(0x[0-9a-f]+\)|\brecirc_id=\d+")  # the latter: of a packet-in
_HASH = re.compile(r"\bdp_hash=0x[0-9a-f]+(?:/(0x[0-9a-f]+))?")
_FORGOTTEN = "No recirculation context"
_ATTEMPTS = 20  # on a busy machine half a second may pass between two calls several times in a row
_MAX_HASHES = 64  # tried for one group, spread evenly


@dataclass
class Continuation:
    """The traces behind one ``recirc(ID)``; ToolError if Open vSwitch does not continue it.

    ``trace`` traces the packet with fields in flow syntax; ``repeat`` repeats the translation that printed the id
    ``identity``, the one at ``ordinal`` in it.
    """

    trace: Callable[[str], list[Pass]]
    repeat: Callable[[], Pass]
    identity: int
    ordinal: int

    def variants(self, hashed: bool) -> list[list[str]]:
        """Return the fields that select each continuation; several fields lead to the same one if hash values do."""
        if not hashed:
            return [[""]]
        # Zero means "not hashed yet".
        mask = _HASH.search(self.ask("dp_hash=0x1,")[0].megaflow)
        count = 1 if mask is None else int(mask.group(1), 0) + 1 if mask.group(1) else _MAX_HASHES
        found: dict[str, list[str]] = {}
        for value in range(1, count + 1, max(count // _MAX_HASHES, 1)):
            field = f"dp_hash={value:#x},"
            found.setdefault(_signature(self.ask(field)[0]), []).append(field)
        return list(found.values())

    def ask(self, field: str) -> list[Pass]:
        """Return the translations with one of the fields."""
        for _ in range(_ATTEMPTS):
            translations = self.trace(f"recirc_id={self.identity:#x},{field}")
            if translations[0].failure != _FORGOTTEN:
                return translations
            ids = identities(self.repeat())
            if self.ordinal >= len(ids):
                break
            self.identity = ids[self.ordinal]
        raise ToolError("the switch's rules changed, or it forgets the packet too early; trace again")


def identities(translation: Pass) -> list[int]:
    """Return the ids in the actions of a translation."""
    return [int(identity, 0) for identity in _ID.findall(translation.datapath_actions or "")]


def _signature(translation: Pass) -> str:
    """Return a text that is equal for continuations that do the same; ids always differ."""
    steps = [step.text for step in translation.steps if step.kind != "detail"]
    return "\n".join((_NEW_EACH_TIME.sub("recirc", translation.datapath_actions or ""), *steps))
