"""The output of ``unoctl nf``: tables and trees of nfagent's answers."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group
from rich.text import Text

from unoctl.nf.client import Json
from unoctl.render import View, state, table, tree_text

_STATES = {"active": "up", "applied": "up", "done": "up", "error": "fail", "failed": "fail", "rolled-back": "warn"}
_CLAUSE = re.compile(r"[:;,] ")
_SHORT = 60
_UNTIL_S = 19  # length of an RFC 3339 time to the second


def kinds(found: list[Json]) -> View:
    """List the kinds that can be deployed."""
    rows = [
        (each["name"], "state" if each["movable"] else "restart", "-".join(map(str, each["ports"])), each["summary"])
        for each in found
    ]
    return View(found, table(("KIND", "MOVES BY", "PORTS", "WHAT IT IS"), rows))


def instances(found: list[Json]) -> View:
    """List instances, one per line."""
    rows = [
        (
            each["name"],
            each["project"],
            each["kind"],
            _state(each["status"]),
            (each["placement"] or {}).get("location"),
            ", ".join(str(port["number"]) for port in each["ports"]) or None,
            _short(each["reason"]),
        )
        for each in found
    ]
    return View(found, table(("NAME", "PROJECT", "KIND", "STATUS", "RUNS AT", "PORTS", "REASON"), rows))


def instance(found: Json, exit_status: int = 0) -> View:
    """Show one instance in full."""
    lines: list[tuple[int, Text | str]] = [(0, f"{found['name']} ({found['id']})")]
    lines.append((1, Text.assemble("status ", _state(found["status"]))))
    if found["reason"]:
        lines.append((1, f"reason {found['reason']}"))
    lines.append((1, f"kind {found['kind']}, flavor {found['flavor']}, project {found['project']}"))
    lines += [(1, f"port {port['number']} {port['name']} {port['mac']}") for port in found["ports"]]
    placed = found["placement"]
    if placed:
        pinned = f", pinned to {placed['pin']}" if placed["pin"] else ""
        wanted = f", wanted at {placed['target']}" if placed["target"] not in (None, placed["location"]) else ""
        slot = f", slot {placed['slot']}" if placed["slot"] else ""
        lines.append((1, f"runs at {placed['location'] or 'no place'}{slot}{pinned}{wanted}"))
    lines.append((1, Text.assemble("configuration ", _state(found["config_state"]))))
    if found["offload"]:
        lines.append((1, f"offload {_offload(found['offload'])}"))
    return View(found, tree_text(lines), exit_status)


def migrations(found: list[Json], names: Mapping[str, str]) -> View:
    """List migrations, newest first; ``names``: of instances by id."""
    rows = [
        (
            each["epoch"],
            names.get(each["instance"], each["instance"]),
            f"{each['source']} -> {each['target']}",
            each["mode"],
            _state(each["outcome"]) if each["outcome"] else each["step"],
            _milliseconds(each["report"].get("outage_us") or each["report"].get("freeze_us")),
            _time(each["requested"]),
            _short(each["reason"]),
        )
        for each in found
    ]
    columns = ("EPOCH", "NF", "WAY", "MODE", "OUTCOME", "OUTAGE", "REQUESTED", "REASON")
    return View(found, table(columns, rows, right=("EPOCH", "OUTAGE")))


def migration(found: Json) -> View:
    """Show a migration that has ended; the exit status is 0 if it succeeded."""
    way = f"{found['source']} -> {found['target']}"
    head = Text.assemble(f"migration {found['epoch']}: {way} ", _state(found["outcome"]))
    lines: list[tuple[int, Text | str]] = [(0, head)]
    if found["reason"]:
        lines.append((1, f"reason {found['reason']}"))
    lines += [(1 + depth, line) for depth, line in _tree(found["report"])]
    return View(found, tree_text(lines), 0 if found["outcome"] == "done" else 1)


def chains(found: list[Json]) -> View:
    """List chains, one per line."""
    rows = [
        (
            each["name"],
            each["project"],
            _state(each["status"]),
            " -> ".join(_hop_name(hop) for hop in each["hops"]),
            _links(each["cost"]),
            _latency(each),
        )
        for each in found
    ]
    return View(found, table(("NAME", "PROJECT", "STATUS", "HOPS", "PCIE LINKS", "LATENCY"), rows))


def chain(found: Json, exit_status: int = 0) -> View:
    """Show one chain: its hops in order, and what each costs."""
    head = Text.assemble(f"{found['name']} ({found['id']}), project {found['project']}: ", _state(found["status"]))
    lines: list[Text | str] = [head]
    if found["cost"]:
        cpu = f"{found['cost']['millicores']} millicores"
        lines.append(f"{_links(found['cost']) or 'unknown'} PCIe links, {_latency(found)}, {cpu}")
    if found["unkept"]:
        lines.append(f"the bound is ignored: {found['unkept']}")
    rows = [
        (
            _hop_name(hop),
            hop["kind"],
            _state(hop["status"]),
            cost.get("location"),
            "+".join(each["name"] for each in hop["ports"]) or None,
            cost.get("crossings"),
            _microseconds(cost.get("latency_us")),
            cost.get("millicores"),
            None if cost.get("mbps") is None else f"{cost['mbps']:.1f}",
            _short(hop["reason"]),
        )
        for hop in found["hops"]
        for cost in (hop["cost"] or {},)
    ]
    columns = ("HOP", "KIND", "STATUS", "RUNS AT", "PORTS", "PCIE LINKS", "LATENCY", "MILLICORES", "MBPS", "REASON")
    hops = table(columns, rows, right=("PCIE LINKS", "LATENCY", "MILLICORES", "MBPS"))
    return View(found, Group(*lines, hops), exit_status)


def _hop_name(hop: Json) -> str:
    return f"port {hop['port']}" if hop["port"] is not None else hop["name"] or hop["instance"]


def _links(cost: Json | None) -> str | None:
    return None if cost is None or cost["crossings"] is None else str(cost["crossings"])


def _latency(chain: Json) -> str | None:
    found = _microseconds(chain["cost"]["latency_us"]) if chain["cost"] else None
    bound = _microseconds(chain["latency_us"])
    return found if bound is None else f"{found or 'unknown'} of at most {bound}"


def _microseconds(number: int | None) -> str | None:
    return None if number is None else f"{number} us"


def assets(found: list[Json]) -> View:
    """List hosts: what they run, offer and use."""
    rows = [
        (
            host["address"],
            host["mac"],
            host["vendor"],
            _system(host["systems"]),
            ", ".join(_service(each) for each in host["services"]) or None,
        )
        for host in found
    ]
    return View(found, table(("ADDRESS", "MAC", "VENDOR", "SYSTEM", "SERVICES"), rows))


def _system(systems: list[Json]) -> str | None:
    """Return the first system that a signature knows."""
    return next((each["system"] for each in systems if each["system"]), None)


def _service(service: Json) -> str:
    sense = "" if service["role"] == "server" else "to "
    return f"{sense}{service['port']}/{service['protocol']} {service['application']}"


def why(found: Json, name: str) -> View:
    """Show the optimiser's reasons."""
    lines: list[tuple[int, Text | str]] = [(0, f"{name} runs at {found['location'] or 'no place'}")]
    lines += [(1 + depth, line) for depth, line in _tree(found["why"])]
    return View(found, tree_text(lines))


def load(found: Json, names: Mapping[str, str]) -> View:
    """Show instances, links, locations, and the traffic matrix."""
    lines: list[tuple[int, Text | str]] = [
        (0, f"at {_time(found['at'])}, over {found['window_s']:.1f} s; traffic is exact to {found['error']:.1%}")
    ]
    for name, use in sorted(found["locations"].items()):
        of = f"{use['millicores']} of {use['capacity_millicores']} millicores"
        lines.append((0, f"{name}: {of} by network functions"))
    for name, link in sorted(found["links"].items()):
        ways = f"{link['to_nic']['mbps']:.1f} Mbps to it, {link['to_host']['mbps']:.1f} from it"
        lines.append((0, f"PCIe link of {name}: {ways}, of {link['capacity_mbps']}"))
    for key, use in sorted(found["instances"].items(), key=lambda item: names.get(item[0], item[0])):
        flows = f", {use['flows']} flows" if use["flows"] is not None else ""
        work = f"{use['utilisation']:.0%} of its workers, {use['millicores']} millicores"
        lines.append((0, f"{names.get(key, key)}: {work}, {_traffic(use['traffic'])}{flows}"))
        if use["offload"]:
            beside = f"{_offload(use['offload'])}, {_traffic(use['offload']['traffic'])}"
            lines.append((1, f"carried by the switches beside that: {beside}"))
    lines += [(0, f"port {pair['from']} -> {pair['to']}: {_traffic(pair)}") for pair in found["matrix"]]
    return View(found, tree_text(lines))


def event(found: Json) -> Text:
    """A line."""
    data = found["data"]
    told = ", ".join(f"{key} {_word(value)}" for key, value in data.items() if value is not None)
    return Text(f"{found['id']} {_time(found['time'])} {found['type']} {found['subject']}{': ' if told else ''}{told}")


def _short(reason: str | None) -> str | None:
    """Return the beginning of a reason, which `nf show` and JSON have in full."""
    if reason is None:
        return None
    first = _CLAUSE.split(reason, maxsplit=1)[0]
    if len(first) > _SHORT:
        first = first[: _SHORT - 3].rpartition(" ")[0] or first[: _SHORT - 3]
    return first if first == reason else f"{first}..."


def _offload(found: Json) -> str:
    why = f" ({found['why']})" if found["why"] else ""
    refused = ", ".join(f"{reason} {count}" for reason, count in sorted(found["refused"].items()) if count)
    carried = f"{found['flows']} of {found['capacity']} flows, {found['share']:.0%} of packets"
    return f"{found['state']}{why}: {carried}{f', refused: {refused}' if refused else ''}"


def _traffic(rate: Json) -> str:
    return f"{rate['mbps']:.1f} Mbps, {rate['pps']:.0f} packets/s"


def _tree(value: Any) -> Iterable[tuple[int, str]]:
    """Flatten nested data, one entry per line."""
    entries = value.items() if isinstance(value, dict) else enumerate(value, 1)
    for key, inner in entries:
        if inner is None or inner in ({}, []):
            continue
        if isinstance(inner, dict | list) and any(isinstance(each, dict | list) for each in _values(inner)):
            yield 0, f"{key}:"
            yield from ((1 + depth, line) for depth, line in _tree(inner))
        else:
            yield 0, f"{key}: {_word(inner)}"


def _values(inner: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return inner.values() if isinstance(inner, dict) else inner


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        words = ((str(key), _word(inner)) for key, inner in value.items())
        # A reason why a location is unfit begins with the location.
        return ", ".join(word if word.startswith(f"{key} ") else f"{key} {word}" for key, word in words)
    if isinstance(value, list):
        return ", ".join(map(_word, value))
    return json.dumps(value)


def _state(word: str | None) -> Text:
    if word is None:
        return Text("-")
    return Text(word, style=state(_STATES.get(word, "")).style) if word in _STATES else Text(word)


def _time(text: str) -> str:
    return text[:_UNTIL_S].replace("T", " ")


def _milliseconds(microseconds: int | None) -> str | None:
    return None if microseconds is None else f"{microseconds / 1000:.2f} ms"
