"""Parses data-path actions as Open vSwitch prints them, for example after "Datapath actions:" in ofproto/trace.

The grammar, from ovs-actions(7) and format_odp_actions() of Open vSwitch 3.1, is the same at every depth::

    actions := term ("," term)*
    term    := name | name "=" value | name "(" actions ")" | name "=" value "(" ... ")"

``3`` outputs to data-path port 3, ``set(ipv4(ttl=63))`` nests, ``recirc(0x1)`` has a bare number inside. Braces and
square brackets belong to the word around them.
"""

import re
from dataclasses import dataclass

from server.errors import ActionSyntaxError

_GROUPED = r"\{[^{}]*\}|\[[^\[\]]*\]"
_WORDS = re.compile(rf"((?:{_GROUPED}|[^(){{}}\[\],=])*)(?:=((?:{_GROUPED}|[^(){{}}\[\],])*))?")


@dataclass(frozen=True)
class Term:
    """One action, or one argument of an action: ``name=value(inner)``, of which only the name is always there."""

    name: str
    value: str | None = None
    inner: tuple["Term", ...] | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        inner = "" if self.inner is None else f"({','.join(map(str, self.inner))})"
        return self.name + value + inner

    def child(self, name: str) -> "Term | None":
        """Return the first term of this name in the brackets."""
        return next((term for term in self.inner or () if term.name == name), None)

    def number(self, name: str, default: int | None = None) -> int:
        """Return the number of ``name=NUMBER`` in the brackets; ActionSyntaxError without it or a default."""
        term = self.child(name)
        if term is not None and term.value is not None:
            return to_number(term.value, f"{name} of '{self}'")
        if default is None:
            raise ActionSyntaxError(f"'{self}' lacks {name}=NUMBER")
        return default


def to_number(text: str, what: str) -> int:
    """Return a number, decimal or ``0x``; the ActionSyntaxError names it as ``what``."""
    try:
        return int(text, 0)
    except ValueError as error:
        raise ActionSyntaxError(f"{what} is '{text}'; expected a number") from error


def parse(text: str) -> tuple[Term, ...]:
    """Parse actions; ``drop`` alone, like an empty text, has none.

    Raises:
        ActionSyntaxError: brackets do not match or a term is empty; the text says where.
    """
    stripped = text.strip()
    if stripped in ("", "drop"):
        return ()
    terms, end = _terms(stripped, 0)
    if end < len(stripped):
        raise _error(stripped, end, "a bracket does not match")
    return terms


def _terms(text: str, at: int) -> tuple[tuple[Term, ...], int]:
    """Parse from an offset up to a closing bracket; return the terms and the offset behind them."""
    found: list[Term] = []
    while text[at : at + 1] not in ("", ")"):
        words = _WORDS.match(text, at)
        name, value, at = (words[1].strip(), words[2], words.end()) if words else ("", None, at)
        inner: tuple[Term, ...] | None = None
        if text[at : at + 1] == "(":
            inner, at = _terms(text, at + 1)
            if text[at : at + 1] != ")":
                raise _error(text, at, "a bracket does not match")
            at += 1
        if not name and inner is None:
            raise _error(text, at, "an action is empty")
        found.append(Term(name, None if value is None else value.strip(), inner))
        if text[at : at + 1] != ",":
            break
        at += 1
    return tuple(found), at


def _error(text: str, at: int, problem: str) -> ActionSyntaxError:
    return ActionSyntaxError(f"data-path actions, character {at + 1}: {problem} in {text!r}")
