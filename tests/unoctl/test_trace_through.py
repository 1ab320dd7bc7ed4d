"""``unoctl trace --through``: packets pass network functions, as far as a trace can know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config import ServerConfig
from tests.unoctl.dummy_server import DummyServer
from tests.unoctl.test_trace import PORTS, TCP
from unoctl.trace import packet_text
from unoctl.trace.command import _lines_through
from unoctl.trace.through import Function, Passage, follow
from unoctl.trace.tracer import Tracer

FIREWALL = Function.of({"name": "fw", "kind": "firewall", "ports": [{"number": 2}, {"number": 3}]})
GATEWAY = Function("gw", "ipsec", (2, 3))
BALANCER = Function("lb", "l4lb", (4,))


@pytest.fixture(scope="module")
def server(module_directory: Path) -> Iterator[DummyServer]:
    with DummyServer(module_directory, snics=2, ports=PORTS) as started:
        started.virtual(
            ["in_port=1,actions=output:2", "in_port=3,actions=output:4", "in_port=5,actions=output:5,IN_PORT"]
        )
        yield started


def passed(server: DummyServer, *functions: Function, without: int | None = None) -> tuple[list[Passage], list[str]]:
    ports = [port for port in server.ports if port.number != without]
    tracer = Tracer(ServerConfig.load(server.path), ports)
    trace = tracer.trace(server.ports[0], packet_text.to_bytes(TCP))
    found = follow(tracer, trace, functions, ports)
    return found, [str(line) for _, line in _lines_through(trace, found, False)]


def test_a_packet_passes_a_function_in_line_and_ends_at_one_that_decides(server: DummyServer) -> None:
    (firewall, balancer), lines = passed(server, FIREWALL, BALANCER)
    assert (firewall.function.name, firewall.entered, firewall.left, firewall.complete) == ("fw", 2, 3, True)
    assert firewall.trace is not None
    assert [outcome.details["port"] for outcome in firewall.trace.exits] == [4]
    assert (balancer.entered, balancer.trace, balancer.complete) == (4, None, False)
    assert "It passes firewall fw, if it lets it through" in lines
    assert "It enters l4lb lb, which decides where it goes: not followed" in lines
    assert lines[-1] == "Passes: v1 -> fw -> lb"
    told = firewall.to_json()
    assert (told["function"], told["entered"], told["left"], told["trace"]["port"]) == ("fw", 2, 3, 3)


def test_a_function_that_changes_packets_is_followed_with_a_warning(server: DummyServer) -> None:
    (gateway,), lines = passed(server, GATEWAY)
    assert (gateway.left, gateway.complete) == (3, False)
    assert "It passes ipsec gw, which may change it: followed as if it did not" in lines
    assert lines[-1] == "Passes: v1 -> gw -> port 4 v4"


def test_a_packet_that_returns_to_a_function_is_followed_once(server: DummyServer) -> None:
    loop = Function("loop", "forward", (4, 1))
    found, _ = passed(server, FIREWALL, loop)
    assert [each.function.name for each in found] == ["fw", "loop"]


def test_a_port_that_is_not_there_ends_the_trace(server: DummyServer) -> None:
    (gateway,), _ = passed(server, GATEWAY, without=3)
    assert (gateway.left, gateway.trace) == (3, None)
    assert "whose other port is not there" in gateway.text


def test_without_functions_nothing_is_passed(server: DummyServer) -> None:
    found, lines = passed(server)
    assert found == []
    assert lines[-1] == "Leaves through: port 2 v2"
