"""Findings of ``unoctl doctor`` about network functions."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.server.fake_rest import FakeOneswitchd, problem
from unoctl.doctor.findings import Level
from unoctl.doctor.functions import functions

FACTS = MagicMock()
FACTS.server.oneswitchd.datapath_id = "00000000000000a1"
NONE = Path("/no/such/agent.toml")
FAULT = {"gravity": "critical", "about": "instance", "id": "x", "name": "lb", "project": "p", "since": "12:00"}


def found(fake: FakeOneswitchd | None) -> list[tuple[Level, str, str]]:
    environment = {"NFAGENT_API": fake.api} if fake else {}
    return [(each.level, each.subject, each.message) for each in functions(FACTS, None, environment, NONE)]


@pytest.mark.parametrize("datapath", ["a1", "a2"])
def test_faults_of_this_server_become_findings(module_directory: Path, datapath: str) -> None:
    path = module_directory / "doctor.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as fake:
        listed = [FAULT | {"text": "it hangs"}, FAULT | {"gravity": "warning", "about": "new", "text": "it waits"}]
        fake.overrides["GET /api/v1/servers"] = lambda _: (200, {"servers": [{"datapath_id": datapath}]})
        fake.overrides["GET /api/v1/faults"] = lambda _: (200, {"faults": listed})
        if datapath == "a2":
            assert found(fake) == []
            return
        expected = [(Level.FAIL, "lb", "it hangs (since 12:00)"), (Level.WARN, "lb", "it waits (since 12:00)")]
        assert found(fake) == expected
        listed.clear()
        assert [(level, subject) for level, subject, _ in found(fake)] == [(Level.OK, "nfagent")]
        fake.overrides["GET /api/v1/faults"] = lambda _: problem(503, "store-unavailable", "the disk is full")
        assert [level for level, _, _ in found(fake)] == [Level.FAIL]
    assert [level for level, _, _ in found(fake)] == [Level.FAIL]


def test_an_address_that_is_none_is_to_be_corrected() -> None:
    (wrong,) = functions(FACTS, None, {"NFAGENT_API": "http://127.0.0.1:1"}, NONE)
    assert "expected unix:PATH, tcp:HOST:PORT or tls:HOST:PORT" in wrong.message
    assert str(wrong.mend).startswith("correct $NFAGENT_API or agent.toml")


def test_a_missing_agent_is_no_finding() -> None:
    assert found(None) == []
