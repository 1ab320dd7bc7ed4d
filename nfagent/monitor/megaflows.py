"""Parses ``ovs-appctl dpctl/dump-flows -m --names``: the data path's cached flows, with exact counts while they live.

Open vSwitch prints one flow per line (lib/odp-util.c, lib/dpctl.c of 3.1; with several PMD threads, a line ``flow-dump
from pmd on cpu core: N`` precedes those of each, and a flow may be in several)::

    ufid:UUID, ...,recirc_id(0),...,in_port(vm1),...,vlan(vid=4,pcp=0),encap(...), packets:7, bytes:686, used:0.4s,
    dp:ovs, actions:push_vlan(vid=4,pcp=0),pcie-snic0, dp-extra-info:...
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term, parse, to_number

_LINE = re.compile(
    r"ufid:([0-9a-f-]+), (.*?)recirc_id\((0x[0-9a-f]+|[0-9]+)[/)].*?in_port\(([^)]*)\)(.*?), packets:([0-9]+),"
    r" bytes:([0-9]+), used:(?:([0-9.]+)s|never).*? actions:(.*)"
)
_TUNNEL = re.compile(r"\btunnel\(tun_id=(0x[0-9a-f]+)[,)]")
_VLAN = re.compile(r"\bvlan\(vid=([0-9]+)(?:/(0x[0-9a-f]+))?[,)]")
_THREAD = "flow-dump from "
_EXTRA = ", dp-extra-info:"
_SEVERAL = ("clone", "sample", "check_pkt_len", "actions", "gt", "le")


@dataclass(frozen=True, slots=True)
class Megaflow:
    """One cached flow.

    Attributes:
        key: identifies the flow in the next dump.
        in_port: the ingress interface of its packets, kept through recirculation.
        recirculation: 0: packets as they entered.
        vid: the matched VLAN id of the outermost tag; None: none.
        tunnel: the matched tunnel id, which is the flow-id on PCIe links that carry it beside the packets; None: none.
        actions: as printed; see `outcome`.
        idle_s: seconds since its last counted packet; 0: none yet.
    """

    key: tuple[str, str]
    in_port: str
    recirculation: int
    vid: int | None
    tunnel: int | None
    packets: int
    bytes: int
    actions: str
    idle_s: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of actions on a packet.

    Attributes:
        outputs: interfaces, each with the tunnel id or the outermost VLAN id that was written last (None: none).
        recirculations: ids with which the packet recirculates.
        station: the last source MAC address written; None: none.
    """

    outputs: tuple[tuple[str, int | None], ...]
    recirculations: tuple[int, ...]
    station: str | None = None


def parse_dump(text: str) -> Iterator[Megaflow]:
    """Parse the flows of a dump; skip other lines."""
    thread = ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            thread = line if line.startswith(_THREAD) else thread
            continue
        ufid, metadata, recirculation, in_port, rest, packets, octets, idle, actions = match.groups()
        yield Megaflow(
            (thread, ufid),
            in_port,
            int(recirculation, 0),
            _vid(rest),
            int(tunnel[1], 16) if (tunnel := _TUNNEL.search(metadata)) else None,
            int(packets),
            int(octets),
            actions.partition(_EXTRA)[0],
            float(idle or 0),
        )


def _vid(matched: str) -> int | None:
    found = _VLAN.search(matched)
    if found is None or (found[2] is not None and int(found[2], 16) & 0xFFF != 0xFFF):
        return None
    return int(found[1])


@lru_cache(maxsize=8192)
def outcome(actions: str) -> Effect | None:
    """Return the effect of actions; None: unknown actions."""
    found = _Found([], [], [])
    try:
        _walk(parse(actions), [], found)
    except (ActionSyntaxError, RecursionError):
        return None
    return Effect(tuple(found.outputs), tuple(found.recirculations), found.stations[-1] if found.stations else None)


@dataclass(frozen=True)
class _Found:
    outputs: list[tuple[str, int | None]]
    recirculations: list[int]
    stations: list[str]


def _walk(terms: tuple[Term, ...], written: list[tuple[str, int]], found: _Found) -> None:
    """Follow actions; ``written``: the tags that the packet has and the tunnel id beside it, the last written last."""
    for term in terms:
        if term.name == "push_vlan":
            written.append(("tag", term.number("vid")))
        elif term.name == "pop_vlan":
            tags = [index for index, (kind, _) in enumerate(written) if kind == "tag"]
            written[:] = [each for index, each in enumerate(written) if index not in tags[-1:]]
        elif term.name == "recirc" and term.inner:
            found.recirculations.append(to_number(term.inner[0].name, "recirc"))
        elif term.name in _SEVERAL and term.inner is not None:
            _walk(term.inner, list(written), found)
        elif term.name == "set":
            found.stations.extend(_stations(term))
            tunnel = term.child("tunnel")
            if tunnel is not None:
                written.append(("tunnel", tunnel.number("tun_id", 0)))
        elif term.value is None and term.inner is None:
            found.outputs.append((term.name, written[-1][1] if written else None))


def _stations(term: Term) -> Iterator[str]:
    """Return the source MAC address that ``set(eth(src=...))`` writes as a whole."""
    ethernet = term.child("eth")
    source = ethernet.child("src") if ethernet is not None else None
    if source is not None and source.value is not None and "/" not in source.value:
        yield source.value
