"""The part of ``/metrics`` about requests: how long their answers took, by route."""

import time

from flask import Flask, Response, g, request

from nfagent.api.histogram import SHORT_S, Histogram


class RequestTimes:
    """Measures requests from their arrival to their answer's head; a stream's body may follow for hours.

    Args:
        app: measured from now on.
    """

    def __init__(self, app: Flask) -> None:
        what = "Seconds from a request to the head of its answer."
        self._times = Histogram("http_request_duration_seconds", what, SHORT_S)
        app.before_request(_begin)
        app.after_request(self._end)

    def text(self) -> str:
        """Format them."""
        return self._times.text()

    def _end(self, response: Response) -> Response:
        # The rule, not the path: names of instances would make any number of series.
        route = request.url_rule.rule if request.url_rule is not None else "none"
        status = str(response.status_code)
        self._times.observe(time.perf_counter() - g.began, method=_method(), route=route, status=status)
        return response


def _begin() -> None:
    g.began = time.perf_counter()


def _method() -> str:
    return request.method if request.method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
