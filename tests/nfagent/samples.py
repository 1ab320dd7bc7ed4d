"""Sample objects of the model."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from nfagent.model import Chain, Instance, InstancePort, Kind, Running


def instance(name: str = "lb1", **fields: Any) -> Instance:
    """Return an instance as a client creates it."""
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "name": name,
        "project": "acme",
        "kind": "l4lb",
        "flavor": "small",
        "config": {"vip": "10.0.0.1"},
        "labels": {},
        "pin": None,
        "target": None,
        "present": True,
        "generation": 1,
        "created": time.time(),
    }
    return Instance(**(values | fields))


def port(number: int) -> InstancePort:
    """Return a virtual port."""
    return InstancePort(number, f"nf{number}", f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")


def running(of: Instance, location: str = "hypervisor", **fields: Any) -> Running:
    """Return a process that is about to start."""
    values: dict[str, Any] = {
        "incarnation": str(uuid.uuid4()),
        "instance": of.id,
        "role": "serving",
        "location": location,
        "slot": None,
        "phase": "starting",
        "generation": 1,
        "since": time.time(),
    }
    return Running(**(values | fields))


def chain(name: str, hops: tuple[str, ...]) -> Chain:
    """Return a chain without a bound."""
    return Chain(str(uuid.uuid4()), name, "acme", hops, None, time.time())


class FakeFitness:
    """See `nfagent.protocols.Fitness`.

    Attributes:
        lacking: what locations lack for any function, by location.
    """

    def __init__(self) -> None:
        self.lacking: dict[str, str] = {}

    def lacks(self, instance: Instance, location: str) -> str | None:
        return self.lacking.get(location)

    def look(self, kind: Kind, config: Mapping[str, Any], ports: int, location: str) -> str | None:
        return self.lacking.get(location)
