"""The alert rules for Prometheus name existing metrics, and fire when they should: promtool plays alerts_test.yml."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.programs import search_path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging/prometheus"
PROMTOOL = shutil.which("promtool", path=f"{search_path()}:{Path(sys.executable).parent}")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing; tools/prepare test unpacks it")


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], cwd=RULES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_fire_when_they_should() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_every_rule_is_played_and_says_what_to_do() -> None:
    played = (RULES / "alerts_test.yml").read_text()
    for rule in _rules():
        assert rule["alert"] in played
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("critical", "warning")


def existing(name: str) -> bool:
    """Tell whether ``/metrics`` of oneswitchd or nfagent has a metric, or a histogram with this series."""
    if name.startswith("oneswitch_"):
        return f'"{name}"' in (ROOT / "oneswitch/daemon/src/api/metrics.rs").read_text()
    agent = "".join(path.read_text() for path in (ROOT / "nfagent/api").glob("*metrics.py"))
    bare = re.sub("_(total|bucket|sum|count)$", "", name.removeprefix("nfagent_"))
    return f'"{bare}"' in agent


def names(expression: str) -> list[str]:
    return re.findall(r"\b(?:oneswitch|nfagent)_\w+", expression)


def test_the_rules_name_existing_metrics() -> None:
    named = [name for rule in _rules() for name in names(rule["expr"])]
    assert len(named) > 10
    assert [name for name in named if not existing(name)] == []
    assert not existing("nfagent_no_such_metric_total")
