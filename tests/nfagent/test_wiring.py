"""Ports of network functions and their owner, with only the REST interface of oneswitchd."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from nfagent import wiring
from nfagent.errors import WiringError
from nfagent.model import InstancePort
from nfagent.wiring import ServerWiring
from tests.server.fake_rest import FakeOneswitchd

PORT, HOME, OWNER = InstancePort(1000, "nf1000", "02:00:00:00:00:01"), ("hypervisor", "vf0"), "nfagent/acme/lb"


@pytest.fixture
def fake(directory: Path) -> Iterator[FakeOneswitchd]:
    path = directory / "oneswitchd.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as fake:
        yield fake


@pytest.fixture
def wired(fake: FakeOneswitchd, monkeypatch: pytest.MonkeyPatch) -> ServerWiring:
    monkeypatch.setattr(wiring, "ServerPlumbing", lambda *_, **__: nullcontext(MagicMock()))
    config = MagicMock(switch=())
    config.oneswitchd.configure_mock(api=fake.api, api_token_file=None)
    return ServerWiring(config)


def test_all_ports_of_a_function_are_made_in_one_pass(
    fake: FakeOneswitchd, wired: ServerWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    plumbing = MagicMock()
    opened = MagicMock(return_value=nullcontext(plumbing))
    monkeypatch.setattr(wiring, "ServerPlumbing", opened)
    second = replace(PORT, number=1001, name="nf1001")
    wired.connect([(PORT, HOME[1]), (second, "vf1")], HOME[0], OWNER)
    assert wired.homes(OWNER) == {1000: HOME, 1001: (HOME[0], "vf1")}
    opened.assert_called_once()
    ((numbers, attached),) = [call.args for call in plumbing.connect.call_args_list]
    assert (set(numbers), attached) == ({1000, 1001}, {HOME[0]: [HOME[1], "vf1"]})


def test_a_port_belongs_to_its_function(fake: FakeOneswitchd, wired: ServerWiring) -> None:
    wired.connect([(PORT, HOME[1])], HOME[0], OWNER)
    assert fake.ports[1000]["owner"] == OWNER
    assert wired.homes(OWNER) == {1000: HOME}
    wired.disconnect(PORT)
    assert fake.ports == {}


@pytest.mark.parametrize("before", [None, "nfagent/acme/name-before"])
def test_an_existing_port_is_adopted_in_place(fake: FakeOneswitchd, wired: ServerWiring, before: str | None) -> None:
    fake.add(1000, "nf1000", *HOME, owner=before)
    assert wired.homes(OWNER) == {}
    wired.connect([(PORT, HOME[1])], HOME[0], OWNER)
    assert wired.homes(OWNER) == {1000: HOME}
    assert not any(path.endswith("/move") for _, path, _ in fake.asked)


def test_a_port_of_the_function_is_moved(fake: FakeOneswitchd, wired: ServerWiring) -> None:
    fake.add(1000, "nf1000", "snic0", "pf0vf0", owner=OWNER)
    wired.connect([(PORT, HOME[1])], HOME[0], OWNER)
    assert wired.homes(OWNER) == {1000: HOME}


def test_a_port_of_another_owner_is_left_alone(fake: FakeOneswitchd, wired: ServerWiring) -> None:
    fake.add(1000, "mine", *HOME, owner="somebody")
    for attempt in (lambda: wired.connect([(PORT, HOME[1])], HOME[0], OWNER), lambda: wired.disconnect(PORT)):
        with pytest.raises(WiringError, match="belongs to somebody"):
            attempt()
    assert fake.ports[1000]["owner"] == "somebody"


def test_a_moving_port_is_on_both_interfaces(fake: FakeOneswitchd, wired: ServerWiring) -> None:
    fake.add(1000, "nf1000", *HOME, move={"switch": "hypervisor", "interface": "vf1", "stage": "prepared"})
    fake.add(1001, "nf1001", "hypervisor", "vf2", move={"switch": "snic0", "interface": "vf1", "stage": "prepared"})
    assert wired.carried("hypervisor") == {"vf0": {1000}, "vf1": {1000}, "vf2": {1001}}
    assert wired.carried("snic0") == {"vf1": {1001}}
