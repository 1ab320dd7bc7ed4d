"""``/metrics``: figures of the agent as Prometheus text; administrators only."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast, get_args

from apiflask import APIBlueprint
from flask import Flask, Response, current_app

from nfagent import faults
from nfagent.api.exposition import family, labels
from nfagent.api.faults import databases_down, locations_down, oneswitchd_down
from nfagent.api.history_metrics import History
from nfagent.api.measured_metrics import instances_text, links_text, locations_text
from nfagent.api.request_metrics import RequestTimes
from nfagent.api.services import client, services
from nfagent.faults import Gravity
from nfagent.model import Outcome, Status
from nfagent.overview import Overviews
from nfagent.store import Store

_KEY = "nfagent.metrics"

blueprint = APIBlueprint("metrics", __name__, enable_openapi=False)


def install(app: Flask, store: Store, overviews: Overviews) -> None:
    """Count requests, migrations and decisions from now on."""
    history = History(store)
    overviews.also(history.read)
    app.extensions[_KEY] = (history, RequestTimes(app))


@blueprint.get("/metrics")
def show_metrics() -> Response:
    """Show instances by status, migrations, faults, events, and what was measured; values of 0 are included."""
    client().require_admin("metrics")
    store = services().desired.store
    known = services().overviews.newest()
    views, outcomes = known.views, dict(known.outcomes)
    open_now = {"": outcomes.pop("none", 0)}
    graves = [fault.gravity for fault in faults.faults(views)]
    text = (
        family("instances", "gauge", "Instances by status.", _by("status", get_args(Status), known.statuses))
        + family("migrations_open", "gauge", "Open migrations.", open_now)
        + family("migrations", "counter", "Migrations by outcome.", _by("outcome", get_args(Outcome), outcomes))
        + family("faults", "gauge", "Faults of instances.", _by("gravity", get_args(Gravity), Counter(graves)))
        + family("store_free_bytes", "gauge", "Room on the disk of the store.", {"": known.free_bytes})
        + family(
            "store_waiting_seconds",
            "gauge",
            "How long a change waits for the disk.",
            {"": services().overviews.waiting_s},
        )
        + family("location_up", "gauge", "Whether a location serves.", _locations_up())
        + family("database_up", "gauge", "Whether a switch's database answers.", _databases_up())
        + family("oneswitchd_up", "gauge", "Whether oneswitchd answers.", {"": float(oneswitchd_down() is None)})
        + family("events", "counter", "Id of the newest event.", {"": store.last_event})
    )
    measured = services().monitor.newest()
    text += instances_text(views, measured.instances if measured else {})
    if measured is not None:
        text += links_text(measured.links) + locations_text(measured.locations)
    history, requests = cast("tuple[History, RequestTimes]", current_app.extensions[_KEY])
    text += history.text() + requests.text()
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


def _databases_up() -> dict[str, float]:
    down = {each.subject for each in databases_down()}
    return {labels(location=name): float(name not in down) for name in services().desired.catalog.locations}


def _locations_up() -> dict[str, float]:
    down = {each.subject for each in locations_down()}
    return {labels(location=name): float(name not in down) for name in services().desired.catalog.locations}


def _by(label: str, known: Iterable[str], counts: Mapping[str, int]) -> dict[str, float]:
    return {labels(**{label: value}): count for value, count in (dict.fromkeys(known, 0) | dict(counts)).items()}
