"""Errors as Nova writes them: ``{"itemNotFound": {"code": 404, "message": "..."}}``."""

from flask import Response, json

PREFIX = "/v2.1"

_NAMES = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    501: "notImplemented",
    503: "serviceUnavailable",
}


def fault(status: int, message: str) -> Response:
    """Build a Nova error. An invalid request is 400 there, never 422; 401 is Keystone's, in another form."""
    status = 400 if status == 422 else status
    if status == 401:
        body = {"error": {"code": status, "title": "Unauthorized", "message": message}}
    else:
        body = {_NAMES.get(status, "computeFault"): {"code": status, "message": message}}
    return Response(json.dumps(body), status, content_type="application/json")
