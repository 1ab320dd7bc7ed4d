"""The complete text of ``/metrics``, as far as it does not count what happens; that is in test_metrics.py."""

from dataclasses import replace

import pytest

from nfagent.api.access import LOCAL
from nfagent.measurement import LinkUse, Load, LocationUse, Passed, Rate
from nfagent.store import database, migrations
from tests.nfagent.api_world import OFFLOAD, Api, measurement_of
from tests.nfagent.test_told import LB, PLAIN
from tests.nfagent.world import TENANT_TOKEN


def test_metrics_use_the_prometheus_text_format(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database.Store, "free_bytes", 12_345)
    api.fill()
    with api.store.change() as change:
        migrations.request(change, PLAIN, "hypervisor", "snic0", "state")
        done = migrations.request(change, LB, "hypervisor", "snic0", "state")
        migrations.end(change, done, "failed", None, {})
    refused = api.client.get("/metrics", headers={"X-Auth-Token": TENANT_TOKEN})
    assert (refused.status_code, refused.get_json()["code"]) == (403, "administrators-only")
    answer = api.client.get("/metrics", environ_overrides={LOCAL: True})
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    text, _, _ = answer.text.partition("# HELP nfagent_decisions_total")  # what follows: test_metrics.py
    assert text == (
        "# HELP nfagent_instances Instances by status.\n"
        "# TYPE nfagent_instances gauge\n"
        'nfagent_instances{status="building"} 0\n'
        'nfagent_instances{status="active"} 1\n'
        'nfagent_instances{status="migrating"} 1\n'
        'nfagent_instances{status="deleting"} 0\n'
        'nfagent_instances{status="error"} 0\n'
        "# HELP nfagent_migrations_open Open migrations.\n"
        "# TYPE nfagent_migrations_open gauge\n"
        "nfagent_migrations_open 1\n"
        "# HELP nfagent_migrations_total Migrations by outcome.\n"
        "# TYPE nfagent_migrations_total counter\n"
        'nfagent_migrations_total{outcome="done"} 0\n'
        'nfagent_migrations_total{outcome="rolled-back"} 0\n'
        'nfagent_migrations_total{outcome="failed"} 1\n'
        'nfagent_migrations_total{outcome="cancelled"} 0\n'
        "# HELP nfagent_faults Faults of instances.\n"
        "# TYPE nfagent_faults gauge\n"
        'nfagent_faults{gravity="critical"} 0\n'
        'nfagent_faults{gravity="warning"} 2\n'
        "# HELP nfagent_store_free_bytes Room on the disk of the store.\n"
        "# TYPE nfagent_store_free_bytes gauge\n"
        "nfagent_store_free_bytes 12345\n"
        "# HELP nfagent_store_waiting_seconds How long a change waits for the disk.\n"
        "# TYPE nfagent_store_waiting_seconds gauge\n"
        "nfagent_store_waiting_seconds 0.0\n"
        "# HELP nfagent_location_up Whether a location serves.\n"
        "# TYPE nfagent_location_up gauge\n"
        'nfagent_location_up{location="hypervisor"} 1.0\n'
        'nfagent_location_up{location="snic0"} 1.0\n'
        "# HELP nfagent_database_up Whether a switch's database answers.\n"
        "# TYPE nfagent_database_up gauge\n"
        'nfagent_database_up{location="hypervisor"} 1.0\n'
        'nfagent_database_up{location="snic0"} 1.0\n'
        "# HELP nfagent_oneswitchd_up Whether oneswitchd answers.\n"
        "# TYPE nfagent_oneswitchd_up gauge\n"
        "nfagent_oneswitchd_up 1.0\n"
        "# HELP nfagent_events_total Id of the newest event.\n"
        "# TYPE nfagent_events_total counter\n"
        f"nfagent_events_total {api.store.last_event}\n"
        "# HELP nfagent_instance_info Its other labels; always 1.\n"
        "# TYPE nfagent_instance_info gauge\n"
        'nfagent_instance_info{instance="lb",project="acme",kind="l4lb",location="snic0",status="active"} 1\n'
        'nfagent_instance_info{instance="plain",project="other",kind="probe",location="",status="migrating"} 1\n'
        "# HELP nfagent_instance_unresponsive Whether its process does not answer.\n"
        "# TYPE nfagent_instance_unresponsive gauge\n"
        'nfagent_instance_unresponsive{instance="lb",project="acme"} 0\n'
    )


def test_metrics_show_what_wasmeasured(api: Api) -> None:
    api.fill()
    passed = Passed(10, 1000, 9, 2**53, {'no "route"': 1})
    api.monitor.measured = replace(
        measurement_of("id-lb", Load(0.25, 300, Rate(8.0, 1000.0), 7, passed=passed)),
        links={"snic0": LinkUse(Rate(1.5, 1.0), Rate(0.0, 0.0), 10_000)},
        locations={"hypervisor": LocationUse(1500, 4000)},
    )
    text = api.client.get("/metrics", environ_overrides={LOCAL: True}).text
    labels = 'instance="lb",project="acme"'
    measured = ("nfagent_instance_", "nfagent_link", "nfagent_location_c")
    assert [line for line in text.splitlines() if line.startswith(measured)][2:] == [
        f"nfagent_instance_unresponsive{{{labels}}} 0",
        f"nfagent_instance_utilisation_ratio{{{labels}}} 0.25",
        f"nfagent_instance_cpu_cores{{{labels}}} 0.3",
        f"nfagent_instance_throughput_bits_per_second{{{labels}}} 8000000.0",
        f"nfagent_instance_flows{{{labels}}} 7",
        f'nfagent_instance_packets_total{{{labels},direction="in"}} 10',
        f'nfagent_instance_packets_total{{{labels},direction="out"}} 9',
        f'nfagent_instance_bytes_total{{{labels},direction="in"}} 1000',
        f'nfagent_instance_bytes_total{{{labels},direction="out"}} 9007199254740992',
        f'nfagent_instance_dropped_packets_total{{{labels},reason="no \\"route\\""}} 1',
        'nfagent_link_to_nic_bits_per_second{switch="snic0"} 1500000.0',
        'nfagent_link_to_host_bits_per_second{switch="snic0"} 0.0',
        'nfagent_link_capacity_bits_per_second{switch="snic0"} 10000000000',
        'nfagent_location_cpu_cores{location="hypervisor"} 1.5',
        'nfagent_location_capacity_cores{location="hypervisor"} 4.0',
    ]


def test_metrics_show_what_the_switches_carry(api: Api) -> None:
    api.fill()
    api.monitor.measured = measurement_of("id-lb", Load(0.25, 300, Rate(8.0, 1000.0), 7, OFFLOAD))
    text = api.client.get("/metrics", environ_overrides={LOCAL: True}).text
    labels = 'instance="lb",project="acme"'
    samples_of = [line for line in text.splitlines() if line.startswith("nfagent_offload")]
    assert samples_of == [
        f"nfagent_offload_connected{{{labels}}} 0",
        f"nfagent_offload_flows{{{labels}}} 20",
        f"nfagent_offload_capacity{{{labels}}} 65536",
        f"nfagent_offload_share{{{labels}}} 0.75",
        f"nfagent_offload_packets_total{{{labels}}} 900",
        f"nfagent_offload_bytes_total{{{labels}}} 9007199254740992",
        f'nfagent_offload_refused_total{{{labels},reason="full"}} 3',
        f'nfagent_offload_refused_total{{{labels},reason="rate"}} 1',
    ]
    assert "# TYPE nfagent_offload_refused_total counter\n" in text
