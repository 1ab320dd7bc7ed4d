"""Histograms and counters of ``/metrics``, by Prometheus' conventions."""

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from lab.programs import search_path
from nfagent.api.histogram import Histogram
from nfagent.api.measured_metrics import links_text
from nfagent.measurement import LinkUse, Rate
from nfagent.monitor.matrix import PortRates
from nfagent.monitor.monitor import link_use
from nfagent.monitor.port_counters import PortCounters
from tests.nfagent.world import World

PROMTOOL = shutil.which("promtool", path=f"{search_path()}:{Path(sys.executable).parent}")


def metrics(client: httpx.Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return answer.text


def value(text: str, sample: str) -> float:
    (found,) = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == sample]
    return float(found)


def test_buckets_are_cumulative() -> None:
    times = Histogram("x_seconds", "What.", (0.1, 1.0))
    assert times.text() == ""
    for seconds in (0.1, 0.05, 0.5, 7.0):
        times.observe(seconds, step='a"b')
    times.observe(0.25)
    assert times.text().splitlines() == [
        "# HELP nfagent_x_seconds What.",
        "# TYPE nfagent_x_seconds histogram",
        'nfagent_x_seconds_bucket{le="0.1"} 0',
        'nfagent_x_seconds_bucket{le="1.0"} 1',
        'nfagent_x_seconds_bucket{le="+Inf"} 1',
        "nfagent_x_seconds_sum 0.250000",
        "nfagent_x_seconds_count 1",
        'nfagent_x_seconds_bucket{step="a\\"b",le="0.1"} 2',
        'nfagent_x_seconds_bucket{step="a\\"b",le="1.0"} 3',
        'nfagent_x_seconds_bucket{step="a\\"b",le="+Inf"} 4',
        'nfagent_x_seconds_sum{step="a\\"b"} 7.650000',
        'nfagent_x_seconds_count{step="a\\"b"} 4',
    ]


def test_link_counters_have_their_directions_from_either_side() -> None:
    used, counted = PortRates(Rate(1.0, 10.0), Rate(2.0, 20.0)), PortCounters(3, 300, 4, 400)
    at_hub, at_nic = (link_use(used, counted, 10_000, at_hub=at_hub) for at_hub in (True, False))
    assert (at_hub.to_nic.mbps, at_nic.to_nic.mbps) == (2.0, 1.0)
    text = links_text({"snic0": at_hub, "snic1": at_nic, "snic2": LinkUse(Rate(0, 0), Rate(0, 0), 1)})
    assert value(text, 'nfagent_link_bytes_total{switch="snic0",direction="to_nic"}') == 400
    assert value(text, 'nfagent_link_bytes_total{switch="snic1",direction="to_nic"}') == 300
    assert value(text, 'nfagent_link_packets_total{switch="snic1",direction="to_host"}') == 4
    assert 'bytes_total{switch="snic2"' not in text


def test_migrations_decisions_and_requests_are_counted(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("measured", "toy", config={"n": 1}), "active")
    own_world.operator.post("/api/v1/migrations", json={"instance": "measured", "target": "snic0"})
    own_world.wait(lambda: own_world.show(made)["placement"]["location"] == "snic0")
    own_world.wait_status(made, "active")
    own_world.operator.get("/api/v1/instances/no-such-one")
    own_world.tenant.get("/metrics")
    text = metrics(own_world.operator)
    assert value(text, 'nfagent_migration_duration_seconds_count{outcome="done"}') == 1
    assert value(text, 'nfagent_migration_step_duration_seconds_count{step="freeze"}') == 1
    assert value(text, "nfagent_migration_outage_seconds_count") == 1
    assert value(text, "nfagent_decisions_total") >= 0
    times = "nfagent_http_request_duration_seconds_count"
    route = "/api/v1/instances/<path:reference>"
    assert value(text, f'{times}{{method="GET",route="{route}",status="404"}}') == 1
    assert value(text, f'{times}{{method="POST",route="/api/v1/migrations",status="202"}}') == 1
    assert value(text, f'{times}{{method="GET",route="/metrics",status="403"}}') == 1
    assert "no-such-one" not in text
    again = metrics(own_world.operator)
    assert value(again, "nfagent_migration_outage_seconds_count") == 1
    if PROMTOOL is None:
        pytest.skip("promtool is missing; tools/prepare test unpacks it")
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
