"""HTTP between hosts of a lab: every request is counted, whatever happens to the server."""

import json
import time
from collections.abc import Callable

import pytest

from lab.errors import ControlError
from lab.http_traffic import HttpClient, WebServer
from lab.server import Lab
from lab.spec import LabSpec

pytestmark = pytest.mark.namespaces

SERVER = "10.0.0.1"  # vm1


def wait_for(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_answered(client: HttpClient, more: int) -> None:
    wanted = client.status()["answered"] + more
    wait_for(lambda: client.status()["answered"] >= wanted)


def test_every_request_is_answered_and_counted(demo: Lab) -> None:
    with WebServer(demo, "vm1", size=3000), HttpClient(demo, "out1", SERVER, kept=5) as client:
        client.rate(100, 50)
        wait_until_answered(client, 60)
        client.phase("slower")
        client.rate(50, 0)
        wait_until_answered(client, 60)  # including earlier ones
        report = client.stop()
    assert report.failures == []
    assert report.sent == report.answered > 60
    first, second = report.phases["start"], report.phases["slower"]
    assert min(first["kept"].answered, first["new"].answered) > 10
    assert second["kept"].answered >= 5
    assert first["kept"].delay_ms(0.5) > 0


def test_answers_are_awaited_by_server_and_request(demo: Lab) -> None:
    requests = ("www/", "api/")
    with WebServer(demo, "vm1"), HttpClient(demo, "out1", SERVER, kept=2, requests=requests) as client:
        client.rate(100, 0)
        assert client.await_answers(10)
        assert client.await_answers(8, "vm1", "api/")
        assert client.answered("api/")["vm1"] >= 8
        assert sum(client.answered().values()) >= 15
        assert client.answered(kinds=["new"]) == {}
        assert not client.await_answers(1, "vm2", timeout_s=0.1)
        client.rate(0, 0)
        client.phase("idle")
        assert not client.await_answers(1, "vm1", "www/", timeout_s=0.1)


def test_requests_lost_with_a_server_are_counted(demo: Lab) -> None:
    server = WebServer(demo, "vm1")
    with HttpClient(demo, "out1", SERVER, kept=5) as client:
        client.rate(100, 50)
        wait_until_answered(client, 30)
        died = time.time()
        server.close()
        client.phase("dead")  # the next server answers all requests from here on
        with WebServer(demo, "vm1"):
            client.rate(100, 50)
            wait_until_answered(client, 60)
            back = client.status()["first_answer"]["new"]
            report = client.stop()
    assert report.sent == report.answered + len(report.failures)
    assert report.failures, "kept connections did not notice"
    assert report.failed_within(died, back) == report.failures


def test_a_client_without_a_connection_reports_it(demo: Lab) -> None:
    with pytest.raises(ControlError, match="Connect call failed"):
        HttpClient(demo, "out1", SERVER)


def test_an_snic_ends_with_its_slots_and_processes(lab_dir: object) -> None:
    with Lab(LabSpec.demo().with_slots(1)).start() as lab:
        snic, host = lab.switch("snic0"), lab.switch("hypervisor")
        kept = lab.popen("hypervisor.nf1", ["sleep", "1000"])
        with lab.popen("snic0.nf1", ["sleep", "1000"]) as ended:
            wait_for(lambda: len(snic.processes()) > 1 and len(host.processes()) > 1)
            snic.power_off()
            assert ended.wait(timeout=10) != 0
        wait_for(lambda: snic.processes() == [])
        assert kept.poll() is None
        assert lab.state.switches[1].processes == {}
        assert lab.state.switches[0].processes.keys() == {"ovs-vswitchd", "ovsdb-server"}
        # The kernel reports a lost carrier up to a second late.
        show = ["ip", "-json", "link", "show", "pcie-snic0"]
        wait_for(lambda: json.loads(lab.exec("hypervisor", show).stdout)[0]["operstate"] != "UP")
        snic.power_on()
        assert lab.state.switches[1].processes.keys() == {"ovs-vswitchd", "ovsdb-server"}
        assert lab.state.links[0].up
        kept.kill()
        kept.wait()
