"""Problem documents of ``/api/v1``, and its stream of events."""

import json
from pathlib import Path
from typing import Any

import pytest

from nfagent.api.events import _stream
from nfagent.errors import InvalidError, StoreError
from nfagent.model import Decision, Event
from nfagent.store import events
from server.errors import ApiUnreachableError
from tests.nfagent.api_world import AT, AT_ISO, V1, Api, problem
from tests.nfagent.world import ADMIN_TOKEN

# ---- problems


def test_a_malformed_request_gets_a_complete_problem_document(api: Api) -> None:
    why = "The browser (or proxy) sent a request that this server could not understand."
    numbers = (b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}')
    for body in (b"{", b"", b"\xff\xfe", b"{'a': 1}", b"nul", b"[" * 100_000, *numbers):
        answer = api.ask("POST", "/instances", data=body, content_type="application/json")
        problem(answer, 400, "malformed", "Bad Request", f"POST {V1}/instances: {why}")
    answer = api.ask("POST", "/instances", json={"kind": 7, "labels": {"a": 1}})
    assert answer.json["code"] == "invalid"
    named = [each["field"] for each in answer.json["errors"]]
    assert sorted(named) == ["kind", "labels.a", "name"]
    assert answer.json["detail"] == "; ".join(f"{each['field']}: {each['problem']}" for each in answer.json["errors"])
    large = api.ask("POST", "/instances", data=b"x" * ((1 << 20) + 1), content_type="application/json")
    assert (large.status_code, large.json["code"]) == (413, "body-too-large")
    for kind, said in (("text/plain", "text/plain"), (None, "missing")):
        answer = api.ask("POST", "/instances", data=b"{}", content_type=kind)
        detail = f"Content-Type is {said}; expected application/json"
        problem(answer, 415, "media-type-unknown", "Unsupported Media Type", detail)
    answer = api.ask("PUT", "/instances/x", json={})
    assert (answer.status_code, answer.json["code"]) == (405, "method-not-allowed")
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "PATCH", "DELETE", "HEAD", "OPTIONS"}
    assert answer.json["detail"].startswith(f"PUT {V1}/instances/x: The method is not allowed for the requested URL.")
    answer = api.ask("GET", "/nothing")
    assert (answer.status_code, answer.json["code"]) == (404, "path-unknown")


def test_internal_errors_are_reported_and_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> Any:
        def proposal() -> Decision:
            raise error

        api.decider.proposal = proposal
        return api.ask("GET", "/placement/proposal")

    path = f"{V1}/placement/proposal"
    detail = f"GET {path}: internal error; see nfagent's log"
    problem(fail(RuntimeError("secret")), 500, "internal", "Internal Server Error", detail)
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.getMessage() == f"GET {path} failed"
    detail = "the store cannot be used; nfagent's log says why"
    problem(fail(StoreError("secret")), 503, "store-unavailable", "Service Unavailable", detail)
    away = fail(ApiUnreachableError("nothing listens"))
    problem(away, 503, "oneswitchd-unavailable", "Service Unavailable", "nothing listens")
    wrong = fail(InvalidError("x", "it is wrong", "a.b"))
    problem(wrong, 422, "x", "Unprocessable Entity", "it is wrong", ("a.b", "it is wrong"))
    problem(fail(InvalidError("x", "it is wrong")), 422, "x", "Unprocessable Entity", "it is wrong")


def test_an_unknown_client_is_asked_for_a_token(api: Api) -> None:
    answer = api.client.get(f"{V1}/instances")
    detail = "no token; send Authorization: Bearer TOKEN (or X-Auth-Token: TOKEN)"
    problem(answer, 401, "token-missing", "Unauthorized", detail)
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="nfagent"'
    answer = api.ask("GET", "/instances", token="x" * 20)
    problem(answer, 401, "token-unknown", "Unauthorized", "the token of this request is unknown")
    answer = api.ask("GET", "/kinds", token="")
    assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (200, False)
    assert api.client.get("/openapi.json").status_code == 200
    assert [api.client.get(path).status_code for path in ("/v2.1", "/v2.1/")] == [200, 200]
    nova = api.client.get("/v2.1/servers/x", headers={"X-Auth-Token": ADMIN_TOKEN})
    assert nova.status_code == 404
    assert "itemNotFound" in nova.text


def test_the_served_openapi_document_is_the_checked_in_one(api: Api) -> None:
    kept = Path(__file__).resolve().parents[2] / "docs/openapi.json"
    served = api.client.get("/openapi.json").json
    assert json.loads(kept.read_text()) == served, f"curl .../openapi.json | python -m json.tool > {kept}"


# ---- events


def follow(
    api: Api, after: int | None, looks: int, project: str | None = None, subject: str | None = None
) -> list[str]:
    """Return the stream of a client that disconnects after some polls."""
    left = [looks]

    def may_go_on() -> bool:
        left[0] -= 1
        return left[0] >= 0

    def told(event: Event) -> dict[str, Any]:
        return event.payload | {"told": True}

    return list(_stream(api.store, project, after, subject, told, may_go_on))


BEGIN = ": events follow\n\n"


def happen(api: Api, *kinds: str, project: str | None = None) -> None:
    for kind in kinds:
        with api.store.change() as change:
            change.event(kind, "it", project, {})
            change.db.execute("UPDATE event SET time = ?", (AT,))


def told(number: int, kind: str) -> str:
    body = {"data": {"told": True}, "id": number, "subject": "it", "time": AT_ISO, "type": kind}
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n"


def gap(oldest: int) -> str:
    return f'event: gap\ndata: {{"oldest": {oldest}}}\n\n'


def test_a_stream_starts_after_the_requested_id(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.store, "wait", lambda *_: False)
    happen(api, "test.a", "test.b")

    def parsed(text: str) -> Any:
        head, _, data = text.partition("data: ")
        return head, json.loads(data)

    with api.app.test_request_context():
        assert follow(api, None, 0) == [BEGIN]
        said = follow(api, 0, 1)
        assert said[0] == BEGIN
        assert [parsed(each) for each in said[1:]] == [parsed(told(1, "test.a")), parsed(told(2, "test.b"))]
        assert [parsed(each) for each in follow(api, 1, 1)[1:]] == [parsed(told(2, "test.b"))]
        assert follow(api, 2, 0) == [BEGIN]
        assert follow(api, 3, 0) == [BEGIN, gap(1)]
        api.store.read.execute("DELETE FROM event WHERE id = 1")
        assert follow(api, 0, 0) == [BEGIN, gap(2)]
        assert follow(api, 1, 0) == [BEGIN]
        assert len(follow(api, 1, 1, "acme")) == len(follow(api, 1, 1, None, "else")) == 1
        assert len(follow(api, 1, 1, None, "it")) == 2


def test_an_idle_stream_sends_heartbeats(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = [0.0], list[tuple[int, float]]()

    def wait(after: int, seconds: float) -> bool:
        waited.append((after, seconds))
        clock[0] += seconds
        return False

    monkeypatch.setattr("nfagent.api.events.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(api.store, "wait", wait)
    happen(api, "test.a")
    with api.app.test_request_context():
        assert follow(api, 1, 17) == [BEGIN, ": still here\n\n"]
        assert waited == [(1, 1.0)] * 17
        waited.clear()
        monkeypatch.setattr("nfagent.api.events.HEARTBEAT_S", 1.5)
        assert follow(api, 1, 4) == [BEGIN, ": still here\n\n"]
        assert waited == [(1, 1.0), (1, 0.5), (1, 1.0), (1, 0.5)]
        waited.clear()
        monkeypatch.setattr("nfagent.api.events._BATCH", 1)
        happen(api, "test.b")
        assert len(follow(api, 0, 3)) == 3
        assert waited == [(2, 1.0)]  # a full batch is followed without a wait
        api.store.end_waits()
        assert follow(api, 0, 3) == [BEGIN]


def test_closing_a_stream_frees_its_slot(api: Api) -> None:
    answer = api.ask("GET", "/events", query_string={"after": 0})
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.content_type == "text/event-stream"
    assert api.streams._taken == 1
    answer.close()
    assert api.streams._taken == 0
    for wrong in ("x", "-1", "1.5", "1" * 19, "٣", "y" * 50):
        answer = api.client.get(
            f"{V1}/events", headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Last-Event-ID": wrong}
        )
        detail = f"Last-Event-ID {wrong[:40]!r} is not an id of an event"
        problem(answer, 422, "invalid", "Unprocessable Entity", detail, ("Last-Event-ID", detail))
    assert events.oldest(api.store.read) == 0
