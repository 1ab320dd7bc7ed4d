"""Problems and plans as JSON: the schema, and conversion. The caller reads and writes files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.errors import SchemaError
from placement.model import NF, Chain, Demand, Mode, Nic, Port, Problem, Sample
from placement.solve import Plan

_AMOUNTS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_COUNT = {"type": "integer", "minimum": 0}
_NAME = {"type": "string", "minLength": 1}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_MODE = _object(["location", "use"], location=_COUNT, use=_AMOUNTS, latency_us=_COUNT, name={"type": "string"})
_DEMAND = _object(["source", "target", "mbps"], source=_NAME, target=_NAME, mbps=_COUNT)

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A placement problem: traffic in Mbps, cores in millicores, memory in MiB, latency in microseconds",
    **_object(
        ["nfs", "nics"],
        nfs=_list(_object(["name", "modes"], name=_NAME, modes=_list(_MODE), state_cost=_COUNT)),
        vms=_list(_NAME),
        ports=_list(_object(["name"], name=_NAME, nic={"type": "integer", "minimum": 1})),
        demands=_list(_DEMAND),
        nics=_list(_object(["capacity"], capacity=_AMOUNTS, up=_COUNT, down=_COUNT, shared=_COUNT)),
        host=_AMOUNTS,
        chains=_list(_object(["name", "path"], name=_NAME, path=_list(_NAME), limit_us=_COUNT)),
        apart=_list({"type": "array", "items": _NAME, "minItems": 2, "maxItems": 2}),
        crossing_us=_COUNT,
        weights=_AMOUNTS,
        window=_list(
            _object(
                ["demands"], demands=_list(_DEMAND), use={"type": "object", "additionalProperties": _list(_AMOUNTS)}
            )
        ),
        current={"type": "object", "additionalProperties": _COUNT},
    ),
}
"""JSON Schema of a problem document; ``current`` is the current placement."""


def from_json(document: Any) -> tuple[Problem, dict[str, int] | None]:
    """Read a problem from a parsed JSON document.

    Returns:
        The problem, and the current placement if the document has one. ``solve`` checks names and amounts.

    Raises:
        SchemaError: a key is missing, unknown, or of the wrong type; the message says where.

    Example:
        >>> problem, current = from_json({"nfs": [{"name": "dpi", "modes": [{"location": 0, "use": {"cores": 5}}]}],
        ...                               "nics": [{"capacity": {"cores": 10}, "shared": 100}]})
        >>> problem.nics[0].shared, current
        (100, None)
        >>> from_json({"nfs": [{"name": "dpi", "mode": []}], "nics": []})
        Traceback (most recent call last):
            ...
        placement.errors.SchemaError: problem.nfs[0] has the key 'mode'; expected one of name, modes, state_cost
    """
    _check(document, SCHEMA, "problem")
    get = document.get
    problem = Problem(
        nfs=tuple(
            NF(nf["name"], tuple(Mode(**mode) for mode in nf["modes"]), nf.get("state_cost", 1)) for nf in get("nfs")
        ),
        vms=tuple(get("vms", ())),
        ports=tuple(Port(**port) for port in get("ports", ())),
        demands=tuple(Demand(**demand) for demand in get("demands", ())),
        nics=tuple(Nic(**nic) for nic in get("nics")),
        host=get("host", {}),
        chains=tuple(Chain(chain["name"], tuple(chain["path"]), chain.get("limit_us")) for chain in get("chains", ())),
        apart=tuple((first, second) for first, second in get("apart", ())),
        crossing_us=get("crossing_us", 0),
        window=tuple(_sample(sample) for sample in get("window", ())),
    )
    if "weights" in document:
        from dataclasses import replace

        problem = replace(problem, weights=document["weights"])
    return problem, get("current")


def _sample(document: Mapping[str, Any]) -> Sample:
    demands = tuple(Demand(**demand) for demand in document["demands"])
    return Sample(demands, {name: tuple(uses) for name, uses in document.get("use", {}).items()})


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    """Check a value against the part of JSON Schema that ``SCHEMA`` uses.

    Raises:
        SchemaError: it does not fit; the message says where and what was expected.
    """
    kind = schema["type"]
    types = {"object": dict, "array": list, "string": str, "integer": int}
    if not isinstance(value, types[kind]) or isinstance(value, bool):
        raise SchemaError(f"{where} is {value!r:.60}; expected {_A[kind]}")
    if kind == "integer" and value < schema.get("minimum", value):
        raise SchemaError(f"{where} is {value}; expected {schema['minimum']} or more")
    if kind == "string" and len(value) < schema.get("minLength", 0):
        raise SchemaError(f"{where} is empty; expected a name")
    if kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise SchemaError(f"{where} has {len(value)} entries; expected {schema['minItems']}")
        for number, item in enumerate(value):
            _check(item, schema["items"], f"{where}[{number}]")
    if kind == "object":
        _check_object(value, schema, where)


_A = {"object": "an object", "array": "a list", "string": "a string", "integer": "a whole number"}


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> None:
    properties, more = schema.get("properties", {}), schema["additionalProperties"]
    for key in schema.get("required", ()):
        if key not in value:
            unknown = next((k for k in value if k not in properties), None)
            if unknown is None:
                raise SchemaError(f"{where} lacks the required key {key!r}")
    for key, item in value.items():
        if key in properties:
            _check(item, properties[key], f"{where}.{key}")
        elif more is False:
            raise SchemaError(f"{where} has the key {key!r}; expected one of {', '.join(properties)}")
        else:
            _check(item, more, f"{where}.{key}")


def to_json(problem: Problem, current: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Write a problem as a JSON document that ``from_json`` reads.

    Example:
        >>> from placement.studies.workloads import uno_ring
        >>> from_json(to_json(uno_ring(40_000)))[0] == uno_ring(40_000)
        True
    """

    def demands(given: tuple[Demand, ...]) -> list[dict[str, Any]]:
        return [{"source": d.source, "target": d.target, "mbps": d.mbps} for d in given]

    def some(**values: Any) -> dict[str, Any]:
        return {key: value for key, value in values.items() if value is not None}

    def mode(m: Mode) -> dict[str, Any]:
        return {"location": m.location, "use": dict(m.use), "latency_us": m.latency_us, "name": m.name}

    document: dict[str, Any] = {
        "nfs": [
            {"name": nf.name, "modes": [mode(m) for m in nf.modes], "state_cost": nf.state_cost} for nf in problem.nfs
        ],
        "vms": list(problem.vms),
        "ports": [{"name": port.name, "nic": port.nic} for port in problem.ports],
        "demands": demands(problem.demands),
        "nics": [some(capacity=dict(n.capacity), up=n.up, down=n.down, shared=n.shared) for n in problem.nics],
        "host": dict(problem.host),
        "chains": [some(name=c.name, path=list(c.path), limit_us=c.limit_us) for c in problem.chains],
        "apart": [list(pair) for pair in problem.apart],
        "crossing_us": problem.crossing_us,
        "weights": dict(problem.weights),
        "window": [
            {"demands": demands(s.demands), "use": {n: [dict(u) for u in uses] for n, uses in s.use.items()}}
            for s in problem.window
        ],
    }
    return document if current is None else document | {"current": dict(current)}


def plan_to_json(plan: Plan, explained: bool = False) -> dict[str, Any]:
    """Write a plan as a JSON document."""
    document: dict[str, Any] = {
        "placement": plan.placement,
        "host_cost": plan.host_cost,
        "bound": plan.bound,
        "proven": plan.proven,
        "certified": plan.certified,
        "stages": [
            {"goal": s.goal, "value": s.value, "bound": s.bound, "proven": s.proven, "backend": s.backend}
            for s in plan.stages
        ],
        "moves": [{"nf": m.nf, "source": m.source, "target": m.target, "detour": m.detour} for m in plan.moves],
    }
    if explained:
        document["binding"] = [{"limit": name, "used": used, "allowed": top} for name, used, top in plan.why.binding]
        document["loads"] = [{"limit": name, "used": used, "allowed": top} for name, used, top in plan.why.loads]
        document["why"] = {name: reason.text for name, reason in plan.why.reasons.items()}
    return document
