"""The application of ``/api/v1`` in this process, on a store, without an agent."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from nfagent.api.access import LOCAL, Access
from nfagent.api.app import application
from nfagent.api.audit import Audit
from nfagent.api.discretion import Discretion
from nfagent.api.services import Services
from nfagent.api.streams import Streams
from nfagent.asset_reader import AssetReader
from nfagent.bulletin import Bulletin
from nfagent.catalog import Catalog
from nfagent.config import AgentConfig, AuditConfig
from nfagent.dashboard.routes import blueprint
from nfagent.desired import Desired
from nfagent.errors import UnavailableError
from nfagent.log_reader import LogReader
from nfagent.measurement import Coefficient, Load, Measurement, Offload, Rate, Step
from nfagent.model import Decision, Instance
from nfagent.overview import Overviews
from nfagent.store import Store, instances, processes
from server.errors import ApiUnreachableError
from server.oneswitchd.answers import Status
from tests.nfagent.samples import FakeFitness
from tests.nfagent.test_told import LB, PLAIN, RUNNING
from tests.nfagent.world import ADMIN_TOKEN, write_files

V1 = "/api/v1"
AT, AT_ISO = 1.5, "1970-01-01T00:00:01.500Z"
DECISION = Decision(0, AT, {"p": 1}, {"id-lb": "snic0"}, {"feasible": True}, ("id-lb",), None)


class FakeDecider:
    """See `nfagent.protocols.Decider`; it returns its input."""

    def __init__(self) -> None:
        self.unkept: dict[str, str] = {}

    def place(self, instance: Instance) -> str:
        raise UnavailableError("test", "nowhere")

    def proposal(self) -> Decision:
        return DECISION

    def why(self, instance: Instance) -> dict[str, Any]:
        return {"text": f"{instance.name} is there"}

    def left_out(self) -> dict[str, str]:
        return self.unkept

    def dry_run(self, pins: dict[str, str], without: list[str]) -> Decision:
        return replace(DECISION, explanation={"pins": pins, "without": without})


class FakeMonitor:
    """See `nfagent.protocols.Monitor`."""

    def __init__(self) -> None:
        self.measured: Measurement | None = None
        self.learnt: list[Coefficient] = []

    def newest(self) -> Measurement | None:
        return self.measured

    def day(self, series: str) -> tuple[Step, ...]:
        return ()

    def history(self) -> list[Measurement]:
        return []

    def coefficients(self) -> list[Coefficient]:
        return self.learnt


class Api:
    """The application and its clients."""

    def __init__(self, directory: Path, audit: Audit | None = None) -> None:
        path = write_files(directory)
        config = AgentConfig.load(path)
        server = config.load_server(path)
        self.store = Store(directory / "state")
        self.decider, self.monitor = FakeDecider(), FakeMonitor()
        self.found: Status | None = None
        self.streams = Streams(3)
        bulletin = Bulletin(self.store)
        services = Services(
            desired=Desired(self.store, Catalog.of(config, server), FakeFitness()),
            bulletin=bulletin,
            overviews=Overviews(self.store, bulletin),
            config=config,
            server=server,
            access=Access(directory / "tokens", "nobody", config.api.listen),
            audit=audit or Audit(AuditConfig(to="none"), directory),
            discretion=Discretion(config, server),
            status=self._status,
            ports=list,
            decider=self.decider,
            monitor=self.monitor,
            logs=LogReader({}, lambda _: False),
            assets=AssetReader(lambda running: directory / f"{running.instance}.sock", lambda _: False),
            streams=self.streams,
        )
        self.app = application(services, blueprint(services))
        self.client: FlaskClient = self.app.test_client()

    def _status(self) -> Status:
        if self.found is None:
            raise ApiUnreachableError("nothing listens")
        return self.found

    def ask(self, method: str, path: str, *, token: str = ADMIN_TOKEN, **options: Any) -> Any:
        """Send a request; with ``token=""`` over the unix socket."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        environ = {} if token else {LOCAL: True}
        return self.client.open(f"{V1}{path}", method=method, headers=headers, environ_overrides=environ, **options)

    def get(self, path: str, token: str = ADMIN_TOKEN, **query: Any) -> Any:
        """Return the answer to a GET."""
        answer = self.ask("GET", path, token=token, query_string=query)
        assert answer.status_code == 200, answer.text
        return answer.json

    def fill(self) -> None:
        """Create two instances, one of them running."""
        with self.store.change() as change:
            instances.add(change, LB)
            instances.add(change, PLAIN)
            processes.add(change, replace(RUNNING, phase="active", silent=None, generation=1, since=AT))


def problem(answer: Any, status: int, code: str, title: str, detail: str, *fields: tuple[str, str]) -> None:
    """Check a whole problem document."""
    assert answer.content_type == "application/problem+json"
    expected: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    if fields:
        expected["errors"] = [{"field": field, "problem": text} for field, text in fields]
    assert (answer.status_code, answer.json) == (status, expected)


OFFLOAD = Offload("waiting", "no socket", 20, 65536, 0.75, 900, 2**53, {"full": 3, "rate": 1}, Rate(8.0, 1000.0))
OFFLOAD_SHOWN = {
    "state": "waiting",
    "why": "no socket",
    "flows": 20,
    "capacity": 65536,
    "share": 0.75,
    "packets": 900,
    "bytes": 2**53,
    "refused": {"full": 3, "rate": 1},
}


def measurement_of(instance: str, load: Load) -> Measurement:
    """Return a measurement of one instance."""
    return Measurement(AT, 2.0, {}, 0.01, {instance: load}, {}, {})
