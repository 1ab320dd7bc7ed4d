"""``/dashboard``: the page and its stream of changes, for administrators."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from flask import Blueprint, Response, g, json, redirect, request
from flask.typing import ResponseReturnValue

from nfagent.api.services import Services
from nfagent.api.streams import is_served
from nfagent.clients import Client
from nfagent.dashboard import render, snapshot
from nfagent.dashboard.board import TICK_S, Board
from nfagent.dashboard.function_routes import FunctionViews
from nfagent.dashboard.probe import Probe
from nfagent.errors import ForbiddenError, RefusedError, UnauthorizedError
from nfagent.store import Store

_NAME = "dashboard"
PATH = "/dashboard"

HEARTBEAT_S = 5.0
_COOKIE = "nfagent_dashboard"
_PATIENCE_S = 1.0  # how long the first page waits for oneswitchd
_NEVER = 2**63
_A_YEAR_S = 31_536_000  # a wall display should not ask for a token every day
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def blueprint(known: Services) -> Blueprint:
    """Create the dashboard of an agent."""
    made = Blueprint(_NAME, __name__, static_folder="static", static_url_path=f"{PATH}/static")
    views = _Views(known)
    made.add_url_rule("/", "root", _root)
    made.add_url_rule(PATH, "page", views.page)
    made.add_url_rule(f"{PATH}/stream", "stream", views.stream)
    views.functions.install(made, f"{PATH}/functions")
    made.add_url_rule(f"{PATH}/login", "login", views.login, methods=["POST"])
    made.add_url_rule(f"{PATH}/logout", "logout", _logout, methods=["POST"])
    made.after_request(_guarded)
    return made


class _Views:
    def __init__(self, known: Services) -> None:
        self._known = known
        self._probe = Probe(lambda: (known.status(), known.ports()))
        self.functions = FunctionViews(known, self._probe, self._check, _refused, _html)
        self._board = Board(lambda: render.fragments(snapshot.take(known, self._probe.newest())))

    def page(self) -> ResponseReturnValue:
        """Serve the current page."""
        try:
            self._check()
        except RefusedError as error:
            return _refused(error)
        self._probe.newest(_PATIENCE_S)
        edition = self._board.newest()
        datapath = self._known.server.oneswitchd.datapath_id
        signed_in = _COOKIE in request.cookies
        return _html(render.page(edition.html(), edition.id, datapath, time.time(), signed_in=signed_in), 200)

    def stream(self) -> ResponseReturnValue:
        """Stream changes of the page until the client disconnects."""
        who, environ, badge = self._check(), request.environ, request.cookies.get(_COOKIE)
        give_back = self._known.streams.take(who)
        response = Response(
            content_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        response.call_on_close(give_back)
        seen = request.headers.get("Last-Event-ID") or request.args.get("seen", "")
        may_go_on = is_served(who, environ, lambda: self._known.access.visitor(environ, badge))
        response.response = _changes(self._board, self._known.desired.store, seen, may_go_on)
        return response

    def login(self) -> ResponseReturnValue:
        """Exchange a token for a cookie."""
        token = request.form.get("token", "").strip()
        access = self._known.access
        try:
            badge = access.badge(token)
            g.client = access.visitor({}, badge)
            g.client.require_admin("the dashboard")
        except RefusedError as error:
            return _door(error, error.status)
        response = redirect(PATH, 303)
        secure = request.is_secure
        response.set_cookie(
            _COOKIE, badge, path=PATH, httponly=True, secure=secure, samesite="Strict", max_age=_A_YEAR_S
        )
        return response

    def _check(self) -> Client:
        who = self._known.access.visitor(request.environ, request.cookies.get(_COOKIE))
        g.client = who
        who.require_admin("the dashboard")
        return who


def _root() -> ResponseReturnValue:
    return redirect(PATH)


def _logout() -> ResponseReturnValue:
    response = redirect(PATH, 303)
    response.delete_cookie(_COOKIE, path=PATH)
    return response


def _refused(error: RefusedError) -> Response:
    """Ask a viewer without a valid token for one."""
    return _door(error if isinstance(error, ForbiddenError) else None, error.status)


def _door(error: RefusedError | None, status: int) -> Response:
    """Show the form that asks for a token, and why the last one was refused."""
    response = _html(render.login(error.detail if error else None), status)
    if status == UnauthorizedError.status:
        response.headers["WWW-Authenticate"] = 'Bearer realm="nfagent"'
    return response


def _html(text: str, status: int) -> Response:
    return Response(text, status, content_type="text/html; charset=utf-8", headers={"Cache-Control": "no-store"})


def _guarded(response: Response) -> Response:
    response.headers.extend(_HEADERS)
    return response


def _changes(board: Board, store: Store, seen: str, may_go_on: Callable[[], bool]) -> Iterator[str]:
    """Yield server-sent events: ``update`` with changes, ``beat`` to detect a dead connection."""
    yield "retry: 2000\n\n"
    told = float("-inf")
    while not store.is_ending and may_go_on():
        edition = board.newest()
        changed = edition.since(seen)
        now = time.monotonic()
        if changed:
            seen, told = edition.id, now
            yield _event("update", edition.id, {"at": render.clock(time.time()), "fragments": changed})
        elif now - told >= HEARTBEAT_S:
            told = now
            yield _event("beat", edition.id, {"at": render.clock(time.time())})
        store.wait(_NEVER, TICK_S)  # until then, or until the agent stops


def _event(kind: str, number: str, body: dict[str, Any]) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n"
