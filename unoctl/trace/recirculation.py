"""Continues the trace of a packet that a datapath recirculates.

ofproto/trace continues by itself only behind connection tracking. After a hash (select groups, bonds) or an MPLS pop it
stops at ``recirc(ID)``; tracing a packet with this id continues it. Open vSwitch forgets the id half a second after the
trace unless traffic uses it; repeating the trace makes a new one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from server.errors import ToolError
from unoctl.trace.model import Pass

_ID = re.compile(r"\brecirc\((0x[0-9a-f]+)\)")
_HASH = re.compile(r"\bdp_hash=0x[0-9a-f]+(?:/(0x[0-9a-f]+))?")
_FORGOTTEN = "No recirculation context"
# On a busy machine half a second may pass between two calls several times in a row.
_ATTEMPTS = 20
# The number of hash values to try for one group, spread evenly.
_MAX_HASHES = 64


@dataclass(frozen=True)
class Variant:
    """A continuation for ``share`` of ``shares`` hash values; ``ask`` repeats its trace."""

    share: int
    shares: int
    ask: Callable[[], list[Pass]]


class Continuation:
    """The traces behind one ``recirc(ID)``.

    Args:
        ask: traces the recirculated packet with these fields, in flow syntax.
        before: repeats the translation that printed the id.
        actions: the data-path actions of that translation.
        identity: the id.
    """

    def __init__(
        self, ask: Callable[[str], list[Pass]], before: Callable[[], Pass], actions: str, identity: int
    ) -> None:
        self._trace = ask
        self._before = before
        self._identity = f"{identity:#x}"
        self._ordinal = _ID.findall(actions).index(self._identity)

    def variants(self, hashed: bool) -> list[Variant]:
        """Return every continuation that some hash value leads to; without a hash there is one.

        Raises:
            ToolError: Open vSwitch does not continue it.
        """
        if not hashed:
            return [self._variant([""], 1)]
        masks = _HASH.search(self._ask("dp_hash=0x1,")[0].megaflow)
        count = 1 if masks is None else int(masks.group(1), 0) + 1 if masks.group(1) else _MAX_HASHES
        # Zero means "not hashed yet".
        values = range(1, count + 1, max(count // _MAX_HASHES, 1))
        found: dict[str, list[str]] = {}
        for field in (f"dp_hash={value:#x}," for value in values):
            found.setdefault(_signature(self._ask(field)[0]), []).append(field)
        return [self._variant(same, len(values)) for same in found.values()]

    def _variant(self, fields: list[str], shares: int) -> Variant:
        return Variant(len(fields), shares, lambda: self._ask(fields[0]))

    def _ask(self, field: str) -> list[Pass]:
        for _ in range(_ATTEMPTS):
            translations = self._trace(f"recirc_id={self._identity},{field}")
            if translations[0].failure != _FORGOTTEN:
                return translations
            identities = _ID.findall(self._before().datapath_actions or "")
            if self._ordinal >= len(identities):
                raise ToolError("the switch's rules changed during the trace; trace again")
            self._identity = identities[self._ordinal]
        raise ToolError("the switch forgets the recirculated packet before it can be continued; trace again")


def _signature(translation: Pass) -> str:
    """Return a text that is equal for continuations that do the same; ids always differ."""
    steps = [step.text for step in translation.steps if step.kind != "detail"]
    return "\n".join((_ID.sub("recirc", translation.datapath_actions or ""), *steps))
