"""curl, wrk and keep-alive connections through the load balancer to nginx, while backends are added, drain and die."""

import json
import time
from collections import Counter

import pytest

from tests.nfs.web import WEBS, WebService, backend, web_service, wrk_report

# A dead backend refuses at once. A slow one, on a machine busy with the load, is not down.
FAST_CHECKS = {"kind": "http", "interval": "500ms", "timeout": "500ms", "rise": 1, "fall": 2}
NO_FAILURE = {"connect": 0, "read": 0, "write": 0, "timeout": 0, "status": 0}


def failures(report: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in report.items() if kind != "requests"}


def wait_for(service: WebService, condition) -> dict[str, int]:
    end = time.monotonic() + 30
    while not condition(found := service.connections()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@pytest.mark.namespaces
@pytest.mark.parametrize("snat", [True, False])
def test_every_request_is_answered_by_every_backend_in_turn(tmp_path, snat: bool) -> None:
    with web_service(tmp_path, snat=snat) as service:
        answers = Counter(service.curl(60))
    assert set(answers) == {"web1", "web2"}
    assert answers.total() == 60


@pytest.mark.namespaces
def test_backends_are_added_and_drain_under_load_without_a_failed_request(tmp_path) -> None:
    with web_service(tmp_path) as service:
        kept = service.keep_alive(20)
        assert kept.stdout is not None
        assert kept.stdout.readline() == "ready\n"
        load = service.wrk(6, 16)
        wait_for(service, lambda found: all(found[name] > 0 for name in ("web1", "web2")))
        service.configure(backends=[backend(name) for name in WEBS])
        assert set(service.curl(60)) == set(WEBS)
        service.configure(backends=[backend("web1", drain=True), backend("web2"), backend("web3")])
        assert set(service.curl(60)) == {"web2", "web3"}
        service.configure(backends=[backend("web1"), backend("web2", weight=5), backend("web3")])
        report = wrk_report(load)
        out, _ = kept.communicate("\n", timeout=60)
    told = json.loads(out)
    assert failures(report) == NO_FAILURE, report
    assert report["requests"] > 100
    assert told["failed"] == []
    assert [names for names in told["answered"] if len(names) != 1] == [], "a connection changed its backend"
    assert told["requests"] > 100


@pytest.mark.namespaces
def test_a_backend_that_dies_takes_only_its_own_requests_with_it(tmp_path) -> None:
    connections = 24
    with web_service(tmp_path, vip={"health": FAST_CHECKS, "when_down": "move"}) as service:
        service.configure(backends=[backend(name) for name in WEBS])
        for name in WEBS:
            wait_until_up(service, name)
        load = service.wrk(6, connections)
        found = wait_for(service, lambda found: all(found[name] > 0 for name in WEBS))
        service.kill_web("web2")
        wait_until_down(service, "web2")
        assert set(service.curl(60)) == {"web1", "web3"}, "new connections go elsewhere once its checks have failed"
        report = wrk_report(load)
        service.start_web("web2")
        wait_until_up(service, "web2")
        assert set(service.curl(60)) == set(WEBS)
    failed = sum(failures(report).values())
    # Its connections break once each. Until two checks have failed, its host refuses some new ones.
    assert failed > 0, "nothing was in flight to it: the test tests nothing"
    assert report["timeout"] == 0
    assert report["requests"] > 100, (report, found)


def wait_until_down(service: WebService, name: str) -> None:
    _wait_health(service, name, "down")


def wait_until_up(service: WebService, name: str) -> None:
    _wait_health(service, name, "up")


def _wait_health(service: WebService, name: str, wanted: str) -> None:
    end = time.monotonic() + 30
    while (found := service.backends()[name]["health"]) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.05)
