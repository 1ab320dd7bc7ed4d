"""The dashboard for Grafana: its queries name existing metrics and parse, its panels fit, compose provisions it."""

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.test_alerts import PROMTOOL, ROOT, existing, names, needs_promtool

GRAFANA = ROOT / "packaging/grafana"
DASHBOARD = GRAFANA / "dashboards/uno-server.json"


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_its_queries_name_existing_metrics(dashboard: dict[str, Any]) -> None:
    named = {name for query in queries(dashboard) for name in names(query)}
    assert len(named) > 25
    assert [name for name in named if not existing(name)] == []


@needs_promtool
def test_its_queries_parse(dashboard: dict[str, Any], tmp_path: Path) -> None:
    assert PROMTOOL is not None
    found = [query.replace("$__rate_interval", "1m").replace("$project", ".*") for query in queries(dashboard)]
    assert not [query for query in found if "$" in query]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(found)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_panels_fit(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    boxes = [panel["gridPos"] for panel in panels]
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in combinations(boxes, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_compose_provisions_it(dashboard: dict[str, Any]) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in compose["grafana"]["volumes"])
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/uno-server.yml").read_text())["providers"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert mounts["./packaging/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./packaging/grafana/provisioning"] == "/etc/grafana/provisioning"
    home = compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/{DASHBOARD.name}"
    assert source["url"] == "http://127.0.0.1:9090"
    assert compose["grafana"]["network_mode"] == compose["prometheus"]["network_mode"]
    published = compose["oneswitchd"]["ports"]
    assert all(re.match(r"127\.0\.0\.1:", port) for port in published)
    assert "127.0.0.1:3000:3000" in published
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["source"]["query"] == source["type"]
