"""A collector of OpenTelemetry that remembers spans."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A received span."""

    service: str
    name: str
    trace: str
    identity: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str]


class Collector:
    """Receives OTLP over HTTP on loopback, from ``with`` on.

    Attributes:
        endpoint: the value for ``OTEL_EXPORTER_OTLP_ENDPOINT``.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._received = threading.Condition()
        receive = self._receive

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                receive(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _receive(self, body: bytes) -> None:
        with self._received:
            for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = {each.key: each.value.string_value for each in of_process.resource.attributes}["service.name"]
                for scope in of_process.scope_spans:
                    self._spans += [
                        Span(
                            service,
                            each.name,
                            each.trace_id.hex(),
                            each.span_id.hex(),
                            each.parent_span_id.hex(),
                            each.start_time_unix_nano,
                            each.end_time_unix_nano,
                            {one.key: one.value.string_value for one in each.attributes},
                        )
                        for each in scope.spans
                    ]
            self._received.notify_all()

    def wait(self, trace: str, done: Callable[[list[Span]], bool]) -> list[Span]:
        """Return the spans of a trace once they meet a condition."""

        def found() -> list[Span]:
            return [span for span in self._spans if span.trace == trace]

        with self._received:
            met = self._received.wait_for(lambda: done(found()), 60)
            assert met, [(span.service, span.name) for span in found()]
            return found()

    @property
    def traces(self) -> set[str]:
        """The ids of all traces."""
        with self._received:
            return {span.trace for span in self._spans}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
