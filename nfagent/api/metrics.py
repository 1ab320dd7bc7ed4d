"""``/metrics``: figures of the agent as Prometheus text; administrators only."""

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from apiflask import APIBlueprint
from flask import Response

from nfagent.api.services import client, services
from nfagent.measurement import Offload
from nfagent.model import Outcome, Status
from nfagent.store import figures

blueprint = APIBlueprint("metrics", __name__, enable_openapi=False)

_OFFLOAD: tuple[tuple[str, str, str, Callable[[Offload], float]], ...] = (
    (
        "offload_connected",
        "gauge",
        "Whether oneswitchd takes the instance's requests.",
        lambda it: int(it.state == "connected"),
    ),
    ("offload_flows", "gauge", "Flows that the switches carry.", lambda it: it.flows),
    ("offload_capacity", "gauge", "Flows that the switches accept.", lambda it: it.capacity),
    ("offload_share", "gauge", "Share of the last second's packets that the switches carried.", lambda it: it.share),
    ("offload_packets", "counter", "Packets that the switches carried.", lambda it: it.packets),
    ("offload_bytes", "counter", "Bytes that the switches carried.", lambda it: it.bytes),
)


@blueprint.get("/metrics")
def show_metrics() -> Response:
    """Show instances by status, migrations, events, offloaded flows by instance; values of 0 are included."""
    client().require_admin("metrics")
    store = services().desired.store
    statuses = figures.instances_by_status(store.read)
    outcomes = figures.migrations_by_outcome(store.read)
    open_now = {"": outcomes.pop("none", 0)}
    text = (
        _family("instances", "gauge", "Instances by status.", _by("status", get_args(Status), statuses))
        + _family("migrations_open", "gauge", "Open migrations.", open_now)
        + _family("migrations", "counter", "Migrations by outcome.", _by("outcome", get_args(Outcome), outcomes))
        + _family("events", "counter", "Id of the newest event.", {"": store.last_event})
        + _offload()
    )
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


def _offload() -> str:
    """Format the figures of all instances that offload; nothing without one."""
    measured = services().monitor.newest()
    loads = measured.instances if measured else {}
    names = figures.instance_names(services().desired.store.read)
    found = {
        _labels(instance=name, project=project): load.offload
        for id_, (project, name) in names.items()
        if (load := loads.get(id_)) is not None and load.offload is not None
    }
    if not found:
        return ""
    refused = {
        f"{labels},{_labels(reason=reason)}": count
        for labels, each in found.items()
        for reason, count in sorted(each.refused.items())
    }
    return "".join(
        _family(name, kind, what, {labels: of(each) for labels, each in found.items()})
        for name, kind, what, of in _OFFLOAD
    ) + _family("offload_refused", "counter", "Refused requests by reason.", refused)


def _by(label: str, known: Iterable[str], counts: Mapping[str, int]) -> dict[str, float]:
    return {_labels(**{label: value}): count for value, count in (dict.fromkeys(known, 0) | dict(counts)).items()}


def _labels(**values: str) -> str:
    quoted = {name: value.replace("\\", r"\\").replace('"', r"\"") for name, value in values.items()}
    return ",".join(f'{name}="{value}"' for name, value in quoted.items())


def _family(name: str, kind: str, what: str, values: Mapping[str, float]) -> str:
    """Format a metric with its samples, by labels."""
    full = f"nfagent_{name}_total" if kind == "counter" else f"nfagent_{name}"
    lines = [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
    lines += [f"{full}{{{labels}}} {value}" if labels else f"{full} {value}" for labels, value in values.items()]
    return "\n".join(lines) + "\n"
