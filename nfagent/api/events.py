"""``/api/v1/events``: all events, as server-sent events."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from apiflask import APIBlueprint
from flask import Response, json, request
from flask.typing import ResponseReturnValue

from nfagent.api.schemas import EventQuery, iso
from nfagent.api.services import client, services
from nfagent.api.streams import is_served
from nfagent.errors import InvalidError
from nfagent.model import Event
from nfagent.store import Store, events

blueprint = APIBlueprint("events", __name__, tag="events")

HEARTBEAT_S = 15.0
_LOOK_S = 1.0  # interval of checking that the client is connected and still authorised
_BATCH = 500
_TYPE = "text/event-stream"
_RESPONSES: dict[int | str, Any] = {
    200: {"description": "The stream; it does not end", "content": {_TYPE: {"schema": {"type": "string"}}}},
    503: "Too many clients follow events",
}


@blueprint.get("/events")
@blueprint.input(EventQuery, location="query")
@blueprint.doc(responses=_RESPONSES)
def follow_events(query_data: EventQuery) -> ResponseReturnValue:
    """Follow events.

    Each event has an id; a client that reconnects with ``Last-Event-ID`` gets all later events. If some of them are no
    longer kept, or the id is above the newest, the first event is ``gap``: list everything again. A comment is sent
    every 15 seconds.
    """
    known = services()
    last = _last_event_id()
    after = last if last is not None else query_data.after
    who, environ = client(), request.environ
    give_back = known.streams.take(who)
    response = Response(content_type=_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.call_on_close(give_back)
    may_go_on = is_served(who, environ, lambda: known.access.client(environ))

    def told(event: Event) -> dict[str, Any]:
        return known.discretion.event(event, admin=who.admin)

    project = None if who.admin else who.project
    response.response = _stream(known.desired.store, project, after, query_data.subject, told, may_go_on)
    return response


def _last_event_id() -> int | None:
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidError("invalid", f"Last-Event-ID {text[:40]!r} is not an id of an event", "Last-Event-ID")
    return int(text)


def _stream(
    store: Store,
    project: str | None,
    after: int | None,
    subject: str | None,
    told: Callable[[Event], dict[str, Any]],
    may_go_on: Callable[[], bool],
) -> Iterator[str]:
    last, oldest = store.last_event if after is None else after, events.oldest(store.read)
    yield ": events follow\n\n"
    if 0 < last + 1 < oldest or last > store.last_event:
        # An id above the newest is from another store, or from one that lost its last hours.
        yield _gap(oldest)
        last = min(last, store.last_event)
    spoke = time.monotonic()
    while not store.is_ending and may_go_on():
        batch, last = events.since(store, last, _BATCH, project, subject)
        yield from (_event(event, told(event)) for event in batch)
        # Send it even amid events that this client may not see, because silence would look like a dead connection.
        if batch or time.monotonic() - spoke >= HEARTBEAT_S:
            spoke = time.monotonic()
            if not batch:
                yield ": still here\n\n"
        if len(batch) < _BATCH:
            store.wait(last, min(_LOOK_S, max(0.0, spoke + HEARTBEAT_S - time.monotonic())))


def _event(event: Event, payload: dict[str, Any]) -> str:
    body = {
        "id": event.id,
        "time": iso(event.time),
        "type": event.type,
        "subject": event.subject,
        "data": payload,
    }
    return f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(body)}\n\n"


def _gap(oldest: int) -> str:
    return f"event: gap\ndata: {json.dumps({'oldest': oldest})}\n\n"
