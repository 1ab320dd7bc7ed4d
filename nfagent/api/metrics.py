"""``/metrics``: figures of the agent as Prometheus text; administrators only."""

from collections.abc import Mapping
from typing import get_args

from apiflask import APIBlueprint
from flask import Response

from nfagent.api.services import client, services
from nfagent.model import Outcome, Status
from nfagent.store import figures

blueprint = APIBlueprint("metrics", __name__, enable_openapi=False)


@blueprint.get("/metrics")
def show_metrics() -> Response:
    """Show instances by status, migrations, events; values of 0 are included."""
    client().require_admin("metrics")
    store = services().desired.store
    statuses = figures.instances_by_status(store.read)
    outcomes = figures.migrations_by_outcome(store.read)
    open_now = {"": outcomes.pop("none", 0)}
    text = (
        _family("instances", "gauge", "Instances by status.", "status", dict.fromkeys(get_args(Status), 0) | statuses)
        + _family("migrations_open", "gauge", "Open migrations.", "", open_now)
        + _family(
            "migrations", "counter", "Migrations by outcome.", "outcome", dict.fromkeys(get_args(Outcome), 0) | outcomes
        )
        + _family("events", "counter", "Id of the newest event.", "", {"": store.last_event})
    )
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


def _family(name: str, kind: str, what: str, label: str, values: Mapping[str, int]) -> str:
    """Format a metric with its samples; label values are the agent's own words and need no escaping."""
    full = f"nfagent_{name}_total" if kind == "counter" else f"nfagent_{name}"
    lines = [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
    lines += [f'{full}{{{label}="{value}"}} {count}' if label else f"{full} {count}" for value, count in values.items()]
    return "\n".join(lines) + "\n"
