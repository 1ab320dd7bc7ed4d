"""Figure 14 in emulation: packets through real functions on cores that a quota slows, in the deployments of Fig. 12.

The chain is two IPsec gateways, each other's peers, and an L7 firewall, between a host behind the sNIC's wire and a
virtual machine. Machines that run this are far from 1 Gbps through all that, so everything is scaled: a core of the
emulated host is the part of a core here of which the firewall would use `host_share`, and an sNIC's core is slower by
UNO's ratios. The round trip is the sum of both ways' delays of sparse packets beside the traffic.
"""

import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from lab import sdwan
from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.frames import Endpoint
from lab.function import Function, add_rules
from lab.processes import cpu_s, in_network_namespaces
from lab.sdwan import PORT_A, PORT_B, SITE_A, SITE_B, SNIC
from lab.server import Lab
from lab.signatures import own_signatures
from lab.spec import HYPERVISOR, LabSpec
from lab.traffic import Stream

Constants = dict[str, dict[str, float]]

SECGW, L7FW = "secgw", "l7fw"
GATEWAYS = ("gateway-a", "gateway-b")
FIREWALL = "firewall"
FLOWS = 10_000
"""Of UNO 5.1. The firewall inspects the first packets of each: all that are sent here."""
PROBES_PER_S = 50.0


@dataclasses.dataclass(frozen=True)
class Way:
    """A deployment of Fig. 12: the locations of the gateways and of the firewall, and who switches."""

    name: str
    gateways: str
    firewall: str
    executor: str = "home"


WAYS = (
    Way("standalone host", HYPERVISOR, HYPERVISOR),
    Way("switch offload", HYPERVISOR, HYPERVISOR, SNIC),
    Way("UNO full", SNIC, SNIC),
    Way("UNO partial", SNIC, HYPERVISOR),
)


class Deployed:
    """The chain on a lab, with all its slots under a quota."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, agent: AgentProcess, way: Way) -> None:
        self.lab, self._agent = lab, agent
        hops = sdwan.chain(lab, own_signatures(lab.directory))["hops"]
        orders = {hop["function"]["name"]: hop["function"] for hop in hops if "function" in hop}
        inspecting = {
            "default": "allow",
            "rules": [{"name": "videos", "applications": ["QUIC.YouTube"], "action": "drop"}],
        }
        orders[FIREWALL] |= {"config": inspecting}
        self._slots: dict[str, str] = {}
        ports: dict[str, list[int]] = {}
        for name in (*GATEWAYS, FIREWALL):
            pin = way.firewall if name == FIREWALL else way.gateways
            shown = Function(agent, orders[name] | {"pin": pin}).await_active()
            ports[name] = [port["number"] for port in shown["ports"]]
            self._slots[name] = shown["placement"]["slot"]
            if name == GATEWAYS[0]:
                self._gateway = Endpoint(shown["ports"][0]["mac"], lab.host(SITE_B).ip)
            if name == GATEWAYS[1]:
                self._other_gateway = Endpoint(shown["ports"][0]["mac"], lab.host(SITE_A).ip)
        # The other site's gateway is entered at its last port, the one toward its peer.
        way_through = [[PORT_A], ports["gateway-a"], ports["gateway-b"][::-1], ports[FIREWALL], [PORT_B]]
        add_rules(lab, oneswitchd, sdwan.wires(way_through))

    def set_speed(self, name: str, speed: float) -> None:
        """Give a function a part of a core; whole ones are the most."""
        self.lab.set_speed(self._slots[name], min(speed, 1.0))

    def busy_s(self, name: str) -> float:
        """Return the CPU time that a function has used."""
        netns = next(slot.netns for slot in self.lab.state.slots if slot.name == self._slots[name])
        return sum(cpu_s(pid) for pid in in_network_namespaces([netns])[netns])

    def streams(self, rate: float, size: int, number: int) -> "Both":
        """Start a stream each way."""
        ends = ((SITE_A, SITE_B, self._gateway), (SITE_B, SITE_A, self._other_gateway))
        return Both(self.lab, ends, rate, size, number)


class Both:
    """A stream each way between the sites."""

    def __init__(
        self, lab: Lab, ends: Sequence[tuple[str, str, Endpoint]], rate: float, size: int, number: int
    ) -> None:
        self._open = ExitStack()
        self._streams: list[Stream] = []
        with contextlib.ExitStack() as undo:
            for index, (source, target, to) in enumerate(ends):
                stream = Stream(lab, source, target, rate=rate, size=size, number=number + index, flows=FLOWS, to=to)
                self._streams.append(undo.enter_context(stream))
            self._open = undo.pop_all()

    def stop(self) -> tuple[float, float]:
        """Return the mean round trip in us, and the part of the packets that was lost."""
        reports = [stream.stop() for stream in self._streams]
        sent = sum(report.sent or 0 for report in reports)
        trip = sum(report.delay_mean_ms for report in reports)
        return 1000 * trip, sum(report.lost or 0 for report in reports) / sent

    def __enter__(self) -> "Both":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


@contextlib.contextmanager
def deployed(way: Way) -> Iterator[Deployed]:
    """Start a server with the chain, deployed this way."""
    with tempfile.TemporaryDirectory(prefix="rt-", dir="/tmp") as path, ExitStack() as stack:
        os.environ[ENVIRONMENT] = path
        lab = stack.enter_context(Lab(_spec(way)).start())
        oneswitchd = stack.enter_context(Oneswitchd(lab.server_toml))
        agent = stack.enter_context(AgentProcess(lab, lab.directory / "nfagent", {"decide": {"enabled": False}}))
        oneswitchd.wait_up()
        yield Deployed(lab, oneswitchd, agent, way)


def _spec(way: Way) -> LabSpec:
    made = sdwan.sites_spec(3, static_arp=True, executor=way.executor)
    return dataclasses.replace(made, slots=tuple(dataclasses.replace(slot, speed=1.0) for slot in made.slots))


def measure(constants: Constants, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Measure all deployments, in rounds that alternate between them; return the medians of each.

    Args:
        constants: of constants.toml.
        seconds: of traffic, for each deployment and round.
        rounds: number of rounds.
    """
    core = _core(constants, seconds)
    found: dict[str, list[dict[str, float]]] = {way.name: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way.name].append(_measure(way, core, constants, seconds))
            print(f"... {way.name}: {found[way.name][-1]}", file=sys.stderr)
    rows = []
    for way in WAYS:
        runs = found[way.name]
        trips = [run["round_trip_us"] for run in runs]
        medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        rows.append({"way": way.name, "core": core, "least_us": min(trips), "most_us": max(trips)} | medians)
    return rows


def cores(rows: Sequence[dict[str, Any]], constants: Constants) -> list[dict[str, float]]:
    """Return the cores that SECGW and L7FW need at a throughput, all on the host or all on the sNIC (Fig. 10)."""
    host, full = (next(row for row in rows if row["way"] == name) for name in ("standalone host", "UNO full"))
    slow = constants["snic"]
    for_host = host["secgw_s_per_gbit"] + host["l7fw_s_per_gbit"]
    for_snic = full["secgw_s_per_gbit"] * slow[SECGW] + full["l7fw_s_per_gbit"] * slow[L7FW]
    return [
        {"gbps": gbps, "host_only": gbps * for_host, "uno_host": 0.0, "uno_snic": gbps * for_snic}
        for gbps in (1, 2, 3, 4)
    ]


def _core(constants: Constants, seconds: float) -> float:
    """Return the part of a core here that stands for a host's core."""
    given = constants["latency"]
    with deployed(WAYS[0]) as chain, chain.streams(given["emulated_pps"], int(given["frame_bytes"]), 1):
        time.sleep(seconds / 4)
        before, begun = chain.busy_s(FIREWALL), time.monotonic()
        time.sleep(seconds)
        used = (chain.busy_s(FIREWALL) - before) / (time.monotonic() - begun)
    return used / given["host_share"]


def _measure(way: Way, core: float, constants: Constants, seconds: float) -> dict[str, float]:
    """Return the round trip of one deployment, its losses, and its functions' CPU time for each Gbit."""
    given, slow = constants["latency"], constants["snic"]
    rate, size = given["emulated_pps"], int(given["frame_bytes"])
    with deployed(way) as chain:
        for name in GATEWAYS:
            chain.set_speed(name, core / (slow[SECGW] if way.gateways == SNIC else 1.0))
        chain.set_speed(FIREWALL, core / (slow[L7FW] if way.firewall == SNIC else 1.0))
        with chain.streams(rate, size, 1) as traffic:
            time.sleep(seconds / 2)  # until the queues are as long as they get
            counted = {SECGW: GATEWAYS[1], L7FW: FIREWALL}
            before, begun = {key: chain.busy_s(name) for key, name in counted.items()}, time.monotonic()
            with chain.streams(PROBES_PER_S, size, 3) as probes:
                time.sleep(seconds)
                trip, lost = probes.stop()
            gbit = 2 * (rate + PROBES_PER_S) * size * 8e-9 * (time.monotonic() - begun)
            used = {key: chain.busy_s(name) - before[key] for key, name in counted.items()}
            traffic.stop()
    return {"round_trip_us": trip, "lost": lost} | {f"{key}_s_per_gbit": each / gbit for key, each in used.items()}
