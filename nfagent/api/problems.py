"""Errors as RFC 9457 ``application/problem+json``; under ``/v2.1`` as Nova writes them."""

import logging
from http import HTTPStatus
from typing import Any

from apiflask import APIFlask, HTTPError
from flask import Response, json, request
from werkzeug.exceptions import HTTPException

from nfagent.api.openstack import faults
from nfagent.errors import DiskFullError, InvalidError, RefusedError, StoreError
from server.errors import ServerError

_log = logging.getLogger(__name__)

_CODES = {
    400: "malformed",
    404: "path-unknown",
    405: "method-not-allowed",
    406: "not-acceptable",
    413: "body-too-large",
    415: "media-type-unknown",
    422: "invalid",
}


def problem(status: int, code: str, detail: str, errors: list[dict[str, str]] | None = None) -> Response:
    """A problem document. ``errors`` are pairs of ``field`` and ``problem``."""
    if request.path.startswith(faults.PREFIX):
        return faults.fault(status, detail)
    title = HTTPStatus(status).phrase
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    if errors:
        body["errors"] = errors
    response = Response(json.dumps(body), status, content_type="application/problem+json")
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="nfagent"'
    return response


def install(app: APIFlask) -> None:
    """Answer every error of an application in this way."""
    app.register_error_handler(RefusedError, _refused)
    app.register_error_handler(ServerError, _oneswitchd)
    app.register_error_handler(DiskFullError, _full)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unexpected)
    app.register_error_handler(HTTPError, _invalid)


def _refused(error: RefusedError) -> Response:
    fields = (
        [{"field": error.field, "problem": error.detail}] if isinstance(error, InvalidError) and error.field else []
    )
    return problem(error.status, error.code, error.detail, fields)


def _oneswitchd(error: Exception) -> Response:
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "oneswitchd-unavailable", str(error))


def _full(error: Exception) -> Response:
    return problem(HTTPStatus.INSUFFICIENT_STORAGE, "disk-full", str(error))


def _invalid(error: HTTPError) -> Response:
    """Convert a schema error: name all invalid fields."""
    errors = [
        {"field": field, "problem": "; ".join(texts)}
        for fields in (error.detail or {}).values()
        for field, texts in fields.items()
    ]
    if not errors:
        return problem(error.status_code, _CODES.get(error.status_code, "refused"), error.message)
    listed = "; ".join(f"{each['field']}: {each['problem']}" for each in errors)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", listed, errors)


def _http(error: HTTPException) -> Response:
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    detail = f"{request.method} {request.path}: {error.description}"
    response = problem(status, _CODES.get(status, "refused"), detail)
    for name, value in error.get_headers():
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    return response


def _unexpected(error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.path, exc_info=error)
    if isinstance(error, StoreError):
        detail = "the store cannot be used; nfagent's log says why"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "store-unavailable", detail)
    detail = f"{request.method} {request.path}: internal error; see nfagent's log"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail)
