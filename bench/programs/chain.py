"""UNO's SD-WAN chain of four functions, deployed by one request over host and smart NIC, while the switches are busy.

Per deployment, in ms from the request on: `accepted`, the answer; `active`, all functions run and have their ports;
`carried`, the first packet of a waiting sender that reaches the other site through all four. The rules from hop to hop
are written at the answer, as a controller does, for ports that are yet to come. `stages` are nfagent's own spans of
each function: where it is placed, the process until it answers, its ports in Open vSwitch and oneswitchd. `lost` counts
packets of the chain after the first one that passed; `busy_lost` those of other hosts, which send to each other both
ways the whole time.
"""

import argparse
import dataclasses
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.frames import Endpoint
from lab.function import Function, add_rules
from lab.sdwan import FUNCTIONS, NAME, SITE_A, SITE_B, SNIC, TURNED, chain, sites_spec, wires
from lab.server import Lab
from lab.signatures import own_signatures
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec
from lab.tally import StreamReport
from lab.traffic import Stream
from tests.nfagent.collector import Collector, Span

CHAINS = "/api/v1/chains"
STAGES = ("place", "launch", "connect")
BUSY = {"busy-a": (3, SNIC, "p1"), "busy-b": (4, HYPERVISOR, "vm2")}
PACKETS_PER_S = 1_000.0
WAITING_PER_S = 500.0
CALLER = "00f067aa0ba902b7"
_EXPORT_MS = "50"
_CARRIED_S = 2.0
"""Of packets through the deployed chain."""
_POLL_S = 0.002
_LIMIT_S = 60.0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 deployments instead of 20: done in 50 s")
    parser.add_argument("--deployments", type=int, help="how many")
    arguments = parser.parse_args()
    count = arguments.deployments or (3 if arguments.quick else 20)
    load = os.getloadavg()[0]
    runs, busy = measure(count)
    print(json.dumps(summary(runs, busy) | {"load": load, "load_after": os.getloadavg()[0]}))


def spec() -> LabSpec:
    """Return the two sites, and two hosts that keep the switches busy."""
    made = sites_spec(4, static_arp=True)
    hosts = tuple(
        HostSpec(name, (InterfaceSpec(switch, interface),), f"10.3.0.{number}/24", f"02:00:00:00:01:{number:02x}")
        for name, (number, switch, interface) in BUSY.items()
    )
    ports = tuple(PortSpec(number, name, switch, interface) for name, (number, switch, interface) in BUSY.items())
    return dataclasses.replace(made, hosts=made.hosts + hosts, ports=made.ports + ports)


def measure(count: int) -> tuple[list[dict[str, Any]], list[StreamReport]]:
    """Deploy and delete the chain this many times, after one that is not counted; return them, and the busy streams."""
    variables = {"OTEL_BSP_SCHEDULE_DELAY": _EXPORT_MS}
    with tempfile.TemporaryDirectory(prefix="ch-", dir="/tmp") as path, ExitStack() as stack:
        os.environ[ENVIRONMENT] = path
        collector = stack.enter_context(Collector())
        lab = stack.enter_context(Lab(spec()).start())
        oneswitchd = stack.enter_context(Oneswitchd(lab.server_toml))
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
        settings = {"decide": {"enabled": False}}
        agent = stack.enter_context(AgentProcess(lab, lab.directory / "nfagent", settings, variables=variables))
        oneswitchd.wait_up()
        fill(agent)
        add_rules(lab, oneswitchd, wires([number] for number, *_ in BUSY.values()))
        one, other = BUSY
        busy = [
            stack.enter_context(Stream(lab, source, target, rate=PACKETS_PER_S, number=number))
            for number, (source, target) in enumerate(((one, other), (other, one)), 2)
        ]
        runs: list[dict[str, Any]] = []
        gateway = None
        for _ in range(count + 1):
            run = deploy(lab, oneswitchd, agent, collector, gateway)
            gateway = run.pop("gateway")
            runs.append(run)
            print(f"... {json.dumps(run)}", file=sys.stderr)
        return runs[1:], [each.stop() for each in busy]


def fill(agent: AgentProcess) -> None:
    """Leave the hypervisor room for two functions, and await the first measurement, which tells where ports are."""
    for number in range(2):
        order = {"name": f"filler{number}", "kind": "forward", "ports": 2, "pin": HYPERVISOR, "config": {}}
        Function(agent, order).await_active()
    while agent.client.get("/api/v1/load").is_error:
        time.sleep(_POLL_S)


def deploy(
    lab: Lab, oneswitchd: Oneswitchd, agent: AgentProcess, collector: Collector, gateway: str | None
) -> dict[str, Any]:
    """Deploy the chain while a sender waits for it, if the address of its gateway is known; then delete it."""
    order = chain(lab, own_signatures(lab.directory))
    with ExitStack() as stack:
        waiting = None
        if gateway is not None:
            to = Endpoint(gateway, lab.host(SITE_B).ip)
            waiting = stack.enter_context(Stream(lab, SITE_A, SITE_B, rate=WAITING_PER_S, to=to))
        trace = secrets.token_hex(16)
        begun, begun_at = time.monotonic(), time.time()
        answer = agent.client.post(CHAINS, json=order, headers={"traceparent": f"00-{trace}-{CALLER}-01"})
        accepted_s = time.monotonic() - begun
        answer.raise_for_status()
        add_rules(lab, oneswitchd, wires(_hops(answer.json())))
        shown = await_active(agent)
        run: dict[str, Any] = {"accepted_ms": _ms(accepted_s), "active_ms": _ms(time.monotonic() - begun)}
        if waiting is not None:
            time.sleep(_CARRIED_S)
            run |= carried(waiting.stop(), begun_at)
    run["places"] = [hop["cost"]["location"] for hop in shown["hops"]]
    names = {hop["instance"]: hop["name"] for hop in shown["hops"] if hop["instance"]}
    run["stages"] = stages(collector.wait(trace, _are_connected), names, begun_at)
    run["gateway"] = next(hop["ports"][0]["mac"] for hop in shown["hops"] if hop["name"] == "gateway-a")
    delete(agent)
    return run


def await_active(agent: AgentProcess) -> dict[str, Any]:
    """Wait until the chain runs.

    Raises:
        SystemExit: it does not.
    """
    deadline = time.monotonic() + _LIMIT_S
    while (shown := agent.client.get(f"{CHAINS}/{NAME}").json())["status"] == "building":
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    if shown["status"] != "active":
        raise SystemExit(f"the chain is {shown['status']}: {json.dumps(shown)}")
    return shown


def delete(agent: AgentProcess) -> None:
    agent.client.delete(f"{CHAINS}/{NAME}").raise_for_status()
    while agent.client.get(f"{CHAINS}/{NAME}").status_code != 404:
        time.sleep(_POLL_S)


def carried(report: StreamReport, begun_at: float) -> dict[str, Any]:
    """Tell when the first packet that passed was sent, and how many were lost after it."""
    if not report.holes:
        raise SystemExit(f"packets passed before the chain was deployed: {report}")
    waited, first_at = report.holes[0]
    return {"carried_ms": _ms(first_at - begun_at), "lost": (report.lost or 0) - waited, "received": report.received}


def stages(spans: Sequence[Span], names: dict[str, str], begun_at: float) -> dict[str, dict[str, list[float]]]:
    """Return begin and end of each function's stages, in ms from the request on."""
    parents = {span.identity: span for span in spans}
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for span in spans:
        step = parents.get(span.parent)
        name = names.get(step.attributes.get("instance", "")) if step else None
        if name is not None and span.name in STAGES:
            found[name][span.name] = [_ms(at / 1e9 - begun_at) for at in (span.start_ns, span.end_ns)]
    return {name: found[name] for name in FUNCTIONS}


def _are_connected(spans: Sequence[Span]) -> bool:
    """Tell whether the steps of all functions have ended."""
    return sum(span.name == "reconcile" for span in spans) >= len(FUNCTIONS)


def summary(runs: Sequence[dict[str, Any]], busy: Sequence[StreamReport]) -> dict[str, Any]:
    """Return the medians and the worst, and what was lost."""
    result: dict[str, Any] = {"deployments": len(runs), "under_2_s": sum(run["carried_ms"] < 2000 for run in runs)}
    for name in ("accepted_ms", "active_ms", "carried_ms"):
        found = [run[name] for run in runs]
        result |= {name: statistics.median(found), f"worst_{name}": max(found)}
    result["stages_ms"] = {
        stage: statistics.median(
            end - begin for run in runs for name in FUNCTIONS for begin, end in [run["stages"][name][stage]]
        )
        for stage in STAGES
    }
    result["places"] = runs[0]["places"]
    result["lost"] = sum(run["lost"] for run in runs)
    return result | {
        "busy_sent": sum(each.sent or 0 for each in busy),
        "busy_lost": sum(each.lost or 0 for each in busy),
    }


def _hops(shown: dict[str, Any]) -> Iterator[tuple[int, ...]]:
    """Yield the ports of a chain's hops, in the order in which packets of site A pass them."""
    for hop in shown["hops"]:
        numbers = (hop["port"],) if hop["port"] is not None else tuple(port["number"] for port in hop["ports"])
        yield numbers[::-1] if hop["name"] == TURNED else numbers


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
