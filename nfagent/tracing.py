"""Traces of requests, exported to a collector of OpenTelemetry that the environment names.

This process exports for its peers, too: a network function runs in a namespace without a network, and oneswitchd opens
no connections but OpenFlow's. They tell when they processed a traced request, in their answers.
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from server import tracing
from server.tracing import Kind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as Recorded
    from opentelemetry.trace import Tracer

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVICE = "nfagent"
_STOP_S = 2.0  # a collector may be away


class Tracing:
    """Records spans and exports them in a thread.

    Args:
        exporter: of spans.
    """

    def __init__(self, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._exporter = exporter
        self._processor = BatchSpanProcessor(exporter)
        self._tracers: dict[str, Tracer] = {}

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> Self | None:
        """Make one if a collector is configured; else nothing is imported, and no thread starts."""
        endpoint = next((variables[name] for name in _ENDPOINTS if variables.get(name)), None)
        is_off = variables.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if endpoint is None or is_off or variables.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            _log.warning("no traces for %s: install uno-server[tracing]", endpoint)
            return None
        _log.info("traces go to the collector at %s", endpoint)
        return cls(OTLPSpanExporter())

    def stop(self) -> None:
        """Export what is left, as far as the collector takes it soon, and end."""
        limit = threading.Timer(_STOP_S, self._exporter.shutdown)  # ends its retries
        limit.start()
        self._processor.shutdown()
        limit.cancel()

    @contextmanager
    def begin(self, name: str, kind: Kind, parent: str | None, **attributes: Any) -> Iterator["_Span | None"]:
        """Run a block as a span of the trace that a ``traceparent`` names; None: of a new one.

        Without effect if the environment (``OTEL_TRACES_SAMPLER``) or the parent does not want this trace.
        """
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": parent or ""})
        tracer = self.tracer(_SERVICE)
        with tracer.start_as_current_span(name, context, _kind(kind), attributes=attributes) as recorded:
            if not recorded.get_span_context().trace_flags.sampled:
                yield None
                return
            span = _Span(self, recorded)
            with tracing.within(span):
                yield span

    def tracer(self, service: str) -> "Tracer":
        """Return what records the spans of a service."""
        found = self._tracers.get(service)
        if found is None:
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider

            resource = Resource.create()  # OTEL_RESOURCE_ATTRIBUTES, and OTEL_SERVICE_NAME, which is this process's
            if service != _SERVICE or not os.environ.get("OTEL_SERVICE_NAME"):
                resource = resource.merge(Resource({SERVICE_NAME: service}))
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(self._processor)
            found = self._tracers[service] = provider.get_tracer("uno-server")
        return found


class _Span:
    """See `server.tracing.Span`."""

    def __init__(self, owner: Tracing, recorded: "Recorded") -> None:
        from opentelemetry.trace import set_span_in_context

        self._owner = owner
        self._recorded = recorded
        self._context = set_span_in_context(recorded)

    @property
    def traceparent(self) -> str:
        at = self._recorded.get_span_context()
        return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"

    @contextmanager
    def step(self, name: str, kind: Kind, attributes: dict[str, Any]) -> Iterator["_Span"]:
        tracer = self._owner.tracer(_SERVICE)
        with tracer.start_as_current_span(name, self._context, _kind(kind), attributes=attributes) as recorded:
            yield _Span(self._owner, recorded)

    def tell(self, service: str, name: str, start_ns: int, end_ns: int) -> None:
        span = self._owner.tracer(service).start_span(name, self._context, _kind("server"), start_time=start_ns)
        span.end(end_ns)

    def note(self, **attributes: Any) -> None:
        """Add attributes."""
        self._recorded.set_attributes(attributes)


def _kind(kind: Kind) -> Any:
    from opentelemetry.trace import SpanKind

    return SpanKind[kind.upper()]
