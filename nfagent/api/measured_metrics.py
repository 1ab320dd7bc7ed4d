"""The part of ``/metrics`` about functions, PCIe links and locations: the newest measurement.

Every sample of a function has the labels ``instance`` and ``project``; ``nfagent_instance_info`` has the others, so
that a function that moves keeps its series.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

from nfagent.api.exposition import family, labels
from nfagent.measurement import LinkTotals, LinkUse, Load, LocationUse, Offload, Passed
from nfagent.model import View

_Kind = Literal["gauge", "counter"]
_T = TypeVar("_T")
_Metrics = tuple[tuple[str, _Kind, str, Callable[[_T], float]], ...]

_LOAD: _Metrics[Load] = (
    ("instance_utilisation_ratio", "gauge", "Work of the workers, as util+ of HNLB.", lambda it: it.utilisation),
    ("instance_cpu_cores", "gauge", "CPU cores that the process uses.", lambda it: it.millicores / 1000),
    ("instance_throughput_bits_per_second", "gauge", "In and out, together.", lambda it: it.traffic.mbps * 1e6),
)
_OFFLOAD: _Metrics[Offload] = (
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
_LINK: _Metrics[LinkUse] = (
    ("link_to_nic_bits_per_second", "gauge", "From the hypervisor to the smart NIC.", lambda it: it.to_nic.mbps * 1e6),
    (
        "link_to_host_bits_per_second",
        "gauge",
        "From the smart NIC to the hypervisor.",
        lambda it: it.to_host.mbps * 1e6,
    ),
    ("link_capacity_bits_per_second", "gauge", "Each way, by agent.toml.", lambda it: it.capacity_mbps * 1_000_000),
)
_LOCATION: _Metrics[LocationUse] = (
    ("location_cpu_cores", "gauge", "CPU cores that functions use.", lambda it: it.millicores / 1000),
    ("location_capacity_cores", "gauge", "CPU cores that they may use.", lambda it: it.capacity_millicores / 1000),
)


def instances_text(views: Iterable[View], loads: Mapping[str, Load]) -> str:
    """Format the figures of all instances."""
    seen = {labels(instance=view.instance.name, project=view.instance.project): view for view in views}
    measured = {named: loads[view.instance.id] for named, view in seen.items() if view.instance.id in loads}
    passed = {named: load.passed for named, load in measured.items() if load.passed is not None}
    offloads = {named: load.offload for named, load in measured.items() if load.offload is not None}
    flows = {named: load.flows for named, load in measured.items() if load.flows is not None}
    silent = {named: int(view.running.silent is not None) for named, view in seen.items() if view.running is not None}
    return (
        family("instance_info", "gauge", "Its other labels; always 1.", {_described(*each): 1 for each in seen.items()})
        + family("instance_unresponsive", "gauge", "Whether its process does not answer.", silent)
        + _families(_LOAD, measured)
        + family("instance_flows", "gauge", "Entries of its flow tables.", flows)
        + _directions("instance_packets", "Packets of its process.", passed, lambda it: (it.packets_in, it.packets_out))
        + _directions("instance_bytes", "Bytes of its process.", passed, lambda it: (it.bytes_in, it.bytes_out))
        + family(
            "instance_dropped_packets",
            "counter",
            "Dropped packets by reason.",
            _by_reason({named: each.dropped for named, each in passed.items()}),
        )
        + _families(_OFFLOAD, offloads)
        + family(
            "offload_refused",
            "counter",
            "Refused requests by reason.",
            _by_reason({named: each.refused for named, each in offloads.items()}),
        )
    )


def links_text(links: Mapping[str, LinkUse]) -> str:
    """Format the use of PCIe links."""
    named = {labels(switch=name): each for name, each in links.items()}
    totals = {name: each.totals for name, each in named.items() if each.totals is not None}
    return (
        _families(_LINK, named)
        + family("link_packets", "counter", "Packets over the PCIe link.", _to_both(totals, "packets"))
        + family("link_bytes", "counter", "Bytes over the PCIe link.", _to_both(totals, "bytes"))
    )


def _to_both(totals: Mapping[str, LinkTotals], what: Literal["packets", "bytes"]) -> dict[str, float]:
    return {
        f"{named},{labels(direction=direction)}": getattr(each, f"{direction}_{what}")
        for named, each in totals.items()
        for direction in ("to_nic", "to_host")
    }


def locations_text(locations: Mapping[str, LocationUse]) -> str:
    """Format the use of locations."""
    return _families(_LOCATION, {labels(location=name): each for name, each in locations.items()})


def _families(metrics: _Metrics[_T], things: Mapping[str, _T]) -> str:
    return "".join(
        family(name, kind, what, {named: of(each) for named, each in things.items()})
        for name, kind, what, of in metrics
    )


def _described(named: str, view: View) -> str:
    location = view.running.location if view.running is not None else ""
    return f"{named},{labels(kind=view.instance.kind, location=location, status=view.status)}"


def _directions(name: str, what: str, passed: Mapping[str, Passed], of: Callable[[Passed], tuple[int, int]]) -> str:
    values = {
        f"{named},{labels(direction=direction)}": count
        for named, each in passed.items()
        for direction, count in zip(("in", "out"), of(each), strict=True)
    }
    return family(name, "counter", what, values)


def _by_reason(counts: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    return {
        f"{named},{labels(reason=reason)}": count
        for named, each in counts.items()
        for reason, count in sorted(each.items())
    }
