"""Traces of requests that change something, and of those whose client traces them."""

from contextlib import ExitStack

from flask import Flask, Response, g, request

from nfagent.tracing import Tracing

_READS = ("GET", "HEAD", "OPTIONS")


def install(app: Flask, tracing: Tracing) -> None:
    """Trace requests from now on."""

    def begin() -> None:
        parent = request.headers.get("traceparent")
        if request.method in _READS and parent is None:
            return  # dashboards and scrapers ask all the time
        # The rule, not the path: names are for attributes (OpenTelemetry's conventions for HTTP).
        route = request.url_rule.rule if request.url_rule is not None else ""
        g.trace = ExitStack()
        g.span = g.trace.enter_context(
            tracing.begin(
                f"{request.method} {route}".strip(),
                "server",
                parent,
                **{"http.request.method": request.method, "http.route": route, "url.path": request.path},
            )
        )

    def note(response: Response) -> Response:
        if g.get("span") is not None:
            g.span.note(**{"http.response.status_code": response.status_code})
        return response

    def end(_: BaseException | None) -> None:
        if "trace" in g:
            g.trace.close()

    app.before_request(begin)
    app.after_request(note)
    app.teardown_request(end)
