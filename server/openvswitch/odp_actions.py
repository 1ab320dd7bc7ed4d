"""Reads data-path actions as Open vSwitch prints them, for example after "Datapath actions:" in ofproto/trace.

The grammar, from ovs-actions(7) and format_odp_actions() of Open vSwitch 3.1, is the same at every depth::

    actions := term ("," term)*
    term    := name | name "=" value | name "(" actions ")" | name "=" value "(" ... ")"

``3`` outputs to data-path port 3, ``set(ipv4(ttl=63))`` nests, ``recirc(0x1)`` has a bare number inside. What a term
means is up to :mod:`unoctl.odp_apply`.
"""

from dataclasses import dataclass

from server.errors import ActionSyntaxError

OPENING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Term:
    """One action, or one argument of an action.

    Attributes:
        name: the word before ``=`` or ``(``; of a bare term, all of it.
        value: what follows ``=``; None: nothing does.
        inner: the terms in the brackets; None: there are no brackets.
    """

    name: str
    value: str | None = None
    inner: tuple["Term", ...] | None = None

    def __str__(self) -> str:
        text = self.name
        if self.value is not None:
            text += f"={self.value}"
        if self.inner is not None:
            text += f"({','.join(str(term) for term in self.inner)})"
        return text

    def argument(self, name: str) -> str | None:
        """The value of ``name=value`` in the brackets; None where there is no such term."""
        for term in self.inner or ():
            if term.name == name:
                return term.value
        return None

    def number(self, name: str, default: int | None = None) -> int:
        """The number of ``name=number`` in the brackets, decimal or ``0x``.

        Raises:
            ActionSyntaxError: there is none and no default, or it is no number.
        """
        text = self.argument(name)
        if text is None:
            if default is not None:
                return default
            raise ActionSyntaxError(f"'{self}' lacks {name}=NUMBER")
        return to_number(text, f"{name} of '{self}'")

    def child(self, name: str) -> "Term | None":
        """The first term of this name in the brackets."""
        for term in self.inner or ():
            if term.name == name:
                return term
        return None


def parse(text: str) -> tuple[Term, ...]:
    """The actions in ``text``; ``drop`` alone, or nothing, is no action.

    Raises:
        ActionSyntaxError: the brackets do not match or a term is empty; the text says where.
    """
    stripped = text.strip()
    if stripped in ("", "drop"):
        return ()
    reader = _Reader(stripped)
    terms = reader.terms()
    reader.expect_end()
    return terms


def to_number(text: str, what: str) -> int:
    """A number, decimal or ``0x``.

    Raises:
        ActionSyntaxError: it is none.
    """
    try:
        return int(text, 0)
    except ValueError as error:
        raise ActionSyntaxError(f"{what} is '{text}'; expected a number") from error


class _Reader:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def terms(self) -> tuple[Term, ...]:
        found: list[Term] = []
        while self._peek() not in ("", ")"):
            found.append(self._term())
            if self._peek() != ",":
                break
            self._at += 1
        return tuple(found)

    def expect_end(self) -> None:
        if self._at < len(self._text):
            raise self._error("a bracket closes that was not opened")

    def _term(self) -> Term:
        name = self._word("=(),")
        value: str | None = None
        if self._peek() == "=":
            self._at += 1
            value = self._word("(),")
        inner: tuple[Term, ...] | None = None
        if self._peek() == "(":
            self._at += 1
            inner = self.terms()
            if self._peek() != ")":
                raise self._error("a bracket is not closed")
            self._at += 1
        if not name and inner is None:
            raise self._error("an action is empty")
        return Term(name, value, inner)

    def _word(self, end: str) -> str:
        """Characters up to one of ``end``; what stands in braces or square brackets belongs to the word."""
        start = self._at
        expected: list[str] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if not expected and character in end:
                break
            if character in "{[":
                expected.append(OPENING[character])
            elif expected and character == expected[-1]:
                expected.pop()
            self._at += 1
        if expected:
            raise self._error(f"'{expected[-1]}' is missing")
        return self._text[start : self._at].strip()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _error(self, problem: str) -> ActionSyntaxError:
        return ActionSyntaxError(f"data-path actions, character {self._at + 1}: {problem} in {self._text!r}")
