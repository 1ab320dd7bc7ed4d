"""The WSGI application."""

import math
from functools import partial
from typing import Any

from apiflask import APIBlueprint, APIFlask
from flask import Blueprint, g, request
from flask.json.provider import DefaultJSONProvider

from nfagent.api import (
    assets,
    audit,
    chains,
    document,
    events,
    faults,
    instances,
    load,
    logs,
    metrics,
    migrations,
    offer,
    placement,
    problems,
    traces,
)
from nfagent.api.openstack import routes
from nfagent.api.services import Services, services
from nfagent.errors import InvalidError, MediaTypeError

BODY_MAX = 1 << 20
_OPEN_PATHS = ("/openapi.json",)
_CHANGES = ("POST", "PUT", "PATCH")
_DESCRIPTION = """Network functions, deployed to one server. The server decides whether each runs on the host or on a
smart NIC, and moves it without clients noticing."""


class _Json(DefaultJSONProvider):
    """JSON as in RFC 8259: without NaN and Infinity, and with limited nesting."""

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        try:
            return super().loads(s, parse_constant=_refuse_constant, parse_float=_finite, **kwargs)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


class _Application(APIFlask):
    json_provider_class = _Json


def application(known: Services, page: Blueprint) -> APIFlask:
    """Assemble the application of an agent.

    Args:
        known: the agent.
        page: the dashboard, which authenticates browsers itself.
    """
    app = _Application("nfagent", title="nfagent", version="1", docs_path=None, json_errors=False)
    app.extensions.update(known.install())
    app.config.update(
        MAX_CONTENT_LENGTH=BODY_MAX,
        DESCRIPTION=_DESCRIPTION,
        SECURITY_SCHEMES={"token": {"type": "http", "scheme": "bearer"}},
        SYNC_LOCAL_SPEC=False,
    )
    app.url_map.strict_slashes = False
    metrics.install(app, known.desired.store, known.overviews)  # before what may refuse a request
    if known.tracing is not None:
        traces.install(app, known.tracing)
    audit.install(app, known.audit)
    app.before_request(partial(_authenticate, page.name))
    problems.install(app)
    native = APIBlueprint("v1", __name__, url_prefix="/api/v1")
    native.before_request(_refuse_repeated)
    for each in (instances, assets, logs, offer, chains, migrations, load, placement, faults, events):
        native.register_blueprint(each.blueprint)
    app.register_blueprint(native)
    app.register_blueprint(metrics.blueprint)
    app.register_blueprint(routes.blueprint)
    app.register_blueprint(page)
    app.spec_processor(document.finished)
    return app


def _authenticate(page: str) -> None:
    services().access.check_origin(request.environ)
    if request.path in _OPEN_PATHS or request.path.rstrip("/") in routes.OPEN_PATHS:
        return
    if request.blueprint == page:
        return
    g.client = services().access.client(request.environ)
    if request.url_rule is not None and request.method in _CHANGES and not request.is_json:
        # Pages of any origin may make a browser send other media types without permission.
        raise MediaTypeError(f"Content-Type is {request.content_type or 'missing'}; expected application/json")


def _refuse_repeated() -> None:
    """Refuse a query that names a parameter twice: no parameter is a list, and only one value would count."""
    for name, values in request.args.lists():
        if len(values) > 1:
            raise InvalidError("invalid", f"{name}: given {len(values)} times; expected once", name)
