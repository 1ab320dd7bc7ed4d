"""The span of what runs now, for traces across processes (OpenTelemetry). Where there is none, nothing is recorded.

Only `nfagent` begins traces; what is below adds steps to them. A thread that continues the work of another one needs
its context: ``contextvars.copy_context().run``.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

Kind = Literal["internal", "client", "server"]


class Span(Protocol):
    """A recorded span.

    Attributes:
        traceparent: names it to another process (W3C Trace Context).
    """

    @property
    def traceparent(self) -> str: ...

    def step(self, name: str, kind: Kind, attributes: dict[str, Any]) -> AbstractContextManager["Span"]:
        """Record a step of it, for the time of the block."""
        ...

    def tell(self, service: str, name: str, start_ns: int, end_ns: int) -> None:
        """Record what a peer did meanwhile, which has no way of its own to a collector."""
        ...


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def current() -> Span | None:
    """Return the span of what runs now; None: it is not traced."""
    return _current.get()


@contextmanager
def within(span: Span) -> Iterator[None]:
    """Run a block as a part of a span."""
    token = _current.set(span)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def step(name: str, kind: Kind = "internal", **attributes: Any) -> Iterator[Span | None]:
    """Run a block, or a decorated function, as a step of the current span, if there is one."""
    span = _current.get()
    if span is None:
        yield None
        return
    with span.step(name, kind, attributes) as inner, within(inner):
        yield inner
