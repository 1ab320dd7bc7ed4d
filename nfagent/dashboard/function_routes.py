"""``/dashboard/functions/ID``: the page of a function, its changes, and actions upon it."""

import time
from collections.abc import Callable

from flask import Blueprint, Response, jsonify, redirect, request
from flask.typing import ResponseReturnValue

from nfagent.api.services import Services
from nfagent.clients import Client
from nfagent.dashboard import render, snapshot
from nfagent.dashboard.function import Function, function
from nfagent.dashboard.probe import Probe
from nfagent.dashboard.snapshot import Snapshot
from nfagent.desired import Amendment
from nfagent.errors import InvalidError, RefusedError, UnavailableError
from nfagent.model import View

_LOG_BYTES = 32 << 10

Check = Callable[[], Client]
"""Returns the viewer of the current request; raises `RefusedError`."""


class FunctionViews:
    """Pages of functions.

    Args:
        known: the agent.
        probe: of oneswitchd.
        check: authenticates.
        door: answers a refused viewer.
        html: makes an answer of a page and its status.
    """

    def __init__(
        self,
        known: Services,
        probe: Probe,
        check: Check,
        door: Callable[[RefusedError], Response],
        html: Callable[[str, int], Response],
    ) -> None:
        self._known = known
        self._probe = probe
        self._check = check
        self._door = door
        self._html = html

    def install(self, blueprint: Blueprint, path: str) -> None:
        """Add the routes below a path."""
        one = f"{path}/<identity>"
        blueprint.add_url_rule(one, "function", self.page)
        blueprint.add_url_rule(f"{one}/parts", "function_parts", self.parts)
        for action in (self.move, self.pin, self.delete):
            blueprint.add_url_rule(f"{one}/{action.__name__}", action.__name__, action, methods=["POST"])

    def page(self, identity: str) -> ResponseReturnValue:
        """Serve the page."""
        try:
            who = self._check()
        except RefusedError as error:
            return self._door(error)
        return self._shown(who, identity, None)

    def parts(self, identity: str) -> ResponseReturnValue:
        """Serve the parts of the page that change, by the ids of their elements."""
        who = self._check()
        made = self._fragments(who, self._known.desired.show(who, identity))
        response = jsonify({"at": render.clock(time.time()), "fragments": made})
        response.headers["Cache-Control"] = "no-store"
        return response

    def move(self, identity: str) -> ResponseReturnValue:
        """Request a migration."""
        return self._act(identity, lambda who: self._known.desired.migrate(who, identity, request.form.get("target")))

    def pin(self, identity: str) -> ResponseReturnValue:
        """Pin it to a location, or unpin it."""
        wanted = Amendment(pin=request.form.get("pin", ""))
        return self._act(identity, lambda who: self._known.desired.amend(who, identity, wanted))

    def delete(self, identity: str) -> ResponseReturnValue:
        """Delete it, if the form repeats its name."""

        def act(who: Client) -> None:
            name = self._known.desired.show(who, identity).instance.name
            if request.form.get("name", "").strip() != name:
                raise InvalidError(
                    "name-differs", f"to delete it, write its name, {name!r}; nothing was deleted", "name"
                )
            self._known.desired.delete(who, identity)

        return self._act(identity, act)

    def _act(self, identity: str, action: Callable[[Client], object]) -> ResponseReturnValue:
        try:
            who = self._check()
        except RefusedError as error:
            return self._door(error)
        try:
            action(who)
        except RefusedError as error:
            return self._shown(who, identity, error)
        return redirect(request.path.rpartition("/")[0], 303)

    def _shown(self, who: Client, identity: str, refusal: RefusedError | None) -> Response:
        """Show the page, and why the last action was refused."""
        try:
            view = self._known.desired.show(who, identity)
        except RefusedError as error:
            return self._html(render.missing(error.detail), error.status)
        status = refusal.status if refusal else 200
        self._probe.newest(1.0)
        known = snapshot.take_one(self._known, self._probe.newest(), view)
        shown = self._worded(who, known, view)
        fragments = render.function_fragments(shown, self._log(view))
        return self._html(render.function_page(shown, fragments, known.at, refusal.detail if refusal else None), status)

    def _fragments(self, who: Client, view: View) -> dict[str, str]:
        known = snapshot.take_one(self._known, self._probe.newest(), view)
        return render.function_fragments(self._worded(who, known, view), self._log(view))

    def _worded(self, who: Client, known: Snapshot, view: View) -> Function:
        config = self._known.discretion.configuration(view.instance.config, who)
        return function(known, view, config, may_change=who.role in ("admin", "operator"))

    def _log(self, view: View) -> str:
        try:
            return self._known.logs.read(view, None, _LOG_BYTES).text
        except UnavailableError as error:
            return f"({error.detail})"
