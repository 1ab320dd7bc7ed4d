"""``/api/v1/events``: all that happens, as server-sent events."""

import time
from collections.abc import Iterator
from typing import Any

from apiflask import APIBlueprint
from flask import Response, json, request
from flask.typing import ResponseReturnValue

from nfagent.api.schemas import EventQuery, iso
from nfagent.api.services import Services, client, services
from nfagent.desired import Client
from nfagent.errors import InvalidError, UnavailableError
from nfagent.model import Event
from nfagent.store import events

blueprint = APIBlueprint("events", __name__, tag="events")

HEARTBEAT_S = 15.0
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
    """Follow what happens.

    Each event has an id; a client that comes again with ``Last-Event-ID`` gets all since. Where some of them are not
    kept any more, the first event is ``gap``: list everything anew. A comment is sent every 15 seconds.
    """
    known = services()
    last = _last_event_id()
    after = last if last is not None else query_data.after
    if not known.streams.acquire(blocking=False):
        most = known.config.api.streams
        raise UnavailableError("too-many-streams", f"{most} clients follow events; no more are allowed ([api] streams)")
    response = Response(content_type=_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.response = _stream(known, client(), after, query_data.subject)
    response.call_on_close(known.streams.release)
    return response


def _last_event_id() -> int | None:
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidError("invalid", f"Last-Event-ID {text[:40]!r} is not an id of an event", "Last-Event-ID")
    return int(text)


def _stream(known: Services, who: Client, after: int | None, subject: str | None) -> Iterator[str]:
    store = known.desired.store
    last = store.last_event if after is None else after
    yield ": events follow\n\n"
    if 0 < last + 1 < events.oldest(store.read):
        yield _gap(events.oldest(store.read))
    project = None if who.admin else who.project
    told = time.monotonic()
    while not store.is_ending:
        batch, last = events.since(store, last, _BATCH, project, subject)
        yield from (_event(event) for event in batch)
        # Also where much happens that is none of this client's: it must not take that for silence.
        if batch or time.monotonic() - told >= HEARTBEAT_S:
            told = time.monotonic()
            if not batch:
                yield ": still here\n\n"
        if len(batch) < _BATCH:
            store.wait(last, max(0.0, told + HEARTBEAT_S - time.monotonic()))


def _event(event: Event) -> str:
    body = {
        "id": event.id,
        "time": iso(event.time),
        "type": event.type,
        "subject": event.subject,
        "data": event.payload,
    }
    return f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(body)}\n\n"


def _gap(oldest: int) -> str:
    return f"event: gap\ndata: {json.dumps({'oldest': oldest})}\n\n"
