"""Ports of network functions: left alone unless the operator insists."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unoctl.fake_rest import FakeOneswitchd, problem
from unoctl import holders
from unoctl.errors import PortHeldError
from unoctl.model import Port

DATAPATH = "00000000000000a1"
HELD = Port(number=1000, name="nf1000", switch="hypervisor", interface="vf0")


@pytest.fixture
def agent(short_folder: Path) -> Iterator[FakeOneswitchd]:
    path = short_folder / "agent.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as fake:
        holds = {"number": 1000, "name": "nf1000", "mac": "x", "instance": "some-id"}
        fake.overrides["GET /api/v1/servers"] = lambda _: (200, {"servers": [{"datapath_id": "a1"}]})
        fake.overrides["GET /api/v1/ports"] = lambda _: (200, {"ports": [holds]})
        fake.overrides["GET /api/v1/instances/some-id"] = lambda _: (200, {"name": "lb1", "project": "acme"})
        yield fake


def check(fake: FakeOneswitchd | None, port: Port, datapath_id: str = DATAPATH) -> None:
    environment = {"NFAGENT_API": fake.api} if fake else {}
    holders.check(datapath_id, None, environment, Path("/no/such/agent.toml"))(port)


def test_the_function_is_named(agent: FakeOneswitchd) -> None:
    with pytest.raises(PortHeldError, match=r"port 1000 \(nf1000\) belongs to .*'lb1' of project 'acme'.*--force"):
        check(agent, HELD)
    check(agent, HELD.model_copy(update={"number": 1001, "name": "nf1001"}))  # left over: the agent knows better
    assert holders.for_command(DATAPATH, None, force=True) is holders.free


def test_an_agent_of_another_server_has_no_say(agent: FakeOneswitchd) -> None:
    check(agent, HELD, "00000000000000a2")


def test_without_an_agent_that_answers_the_name_tells(agent: FakeOneswitchd) -> None:
    agent.overrides["GET /api/v1/ports"] = lambda _: problem(503, "store-unavailable", "the disk is full")
    for fake in (agent, None):
        with pytest.raises(PortHeldError, match=r"by its name, and nfagent cannot be asked"):
            check(fake, HELD)
        check(fake, Port(number=1, name="vm1", switch="hypervisor", interface="vm1"))
