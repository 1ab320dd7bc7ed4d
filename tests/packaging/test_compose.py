"""docker-compose.yml, the Dockerfile and the files they name are consistent; `tools/check-compose` runs them."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from nfagent.config import AgentConfig

ROOT = Path(__file__).resolve().parents[2]
PROFILES = {"sandbox", "observe", "netns"}
PACKAGING = ROOT / "packaging/container"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())


def test_every_service_has_a_profile_and_a_health_check(compose: dict[str, Any]) -> None:
    found = {name: set(service["profiles"]) for name, service in compose["services"].items()}
    assert set().union(*found.values()) == PROFILES
    for name, service in compose["services"].items():
        assert found[name], name
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name


def test_dependencies_of_a_service_have_its_profiles(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        others = list(service.get("depends_on", []))
        others += [mode.partition(":")[2] for mode in [service.get("network_mode", "")] if mode.startswith("service:")]
        for other in others:
            assert set(service["profiles"]) <= set(services[other]["profiles"]), f"{name} needs {other}"
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (ROOT / source).exists(), f"{name}: {volume}"


def test_the_sandbox_has_no_capability(compose: dict[str, Any]) -> None:
    services = [
        each for each in compose["services"].values() if PROFILES & {"sandbox", "observe"} & set(each["profiles"])
    ]
    for service in services:
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "1000:1000"
        assert not {"cap_add", "devices", "privileged"} & set(service)


def test_services_run_existing_programs(compose: dict[str, Any]) -> None:
    script = (PACKAGING / "sandbox").read_text()
    cases = set(re.findall(r"^(\w+)\)$", script, re.MULTILINE))
    with (ROOT / "pyproject.toml").open("rb") as file:
        programs = set(tomllib.load(file)["project"]["scripts"]) | {"packaging/container/sandbox"}
    started = set()
    for name, service in compose["services"].items():
        if name in ("prometheus", "grafana", "jaeger"):
            continue
        program, *arguments = service["command"]
        assert program in programs, name
        started |= set(arguments) if program.endswith("sandbox") else set()
    assert started == cases
    assert os.access(PACKAGING / "sandbox", os.X_OK)


def test_prometheus_scrapes_existing_endpoints(compose: dict[str, Any]) -> None:
    jobs = yaml.safe_load((ROOT / "packaging/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert "tcp:127.0.0.1:9464" in (PACKAGING / "sandbox").read_text()
    assert targets == {"oneswitchd": ["127.0.0.1:9464"], "nfagent": ["127.0.0.1:8774"]}
    agent = AgentConfig.load(PACKAGING / "agent.toml")
    assert "tcp:0.0.0.0:8774" in agent.api.listen
    token = {job["authorization"]["credentials_file"] for job in jobs}
    assert token == {str(Path(agent.server).with_name("token"))}
    assert "127.0.0.1:8774:8774" in compose["services"]["oneswitchd"]["ports"]


def test_the_image_uses_existing_targets_stages_and_extras(dockerfile: str, compose: dict[str, Any]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", dockerfile):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    stages = re.findall(r"^([a-z]+)\) prepare_", (ROOT / "tools/prepare").read_text(), re.MULTILINE)
    assert set(re.findall(r"tools/prepare ([a-z]+)(?= )", dockerfile)) - {"tools"} <= set(stages)
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in ",".join(re.findall(r"EXTRAS=([\w,]+)", dockerfile)).split(","):
        assert extra in extras
    base = re.search(r"^ARG BASE_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert base is not None
    assert re.search(r":\S+-\d{8}-slim$", base[1]), "not pinned"
    for service in compose["services"].values():
        if "build" in service:
            assert service["build"]["args"]["BASE_IMAGE"] == f"${{BASE_IMAGE:-{base[1]}}}"
    assert re.findall(r"^USER (\w+)$", dockerfile, re.MULTILINE) == ["uno"]


def test_copied_files_exist_and_are_not_ignored(dockerfile: str) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for words in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE):
        for source in words.split():
            assert (ROOT / source).exists(), source
            assert source in allowed, f".dockerignore excludes {source}"


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    comment = "".join(re.findall(r"^# .*\n", text, re.MULTILINE))
    page = (ROOT / "docs/containers.md").read_text()
    for setting in set(re.findall(r"\$\{(\w+):-", text)):
        assert setting in comment
        assert setting in page


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman")
def test_the_services_run() -> None:
    subprocess.run([ROOT / "tools/check-compose"], check=True, timeout=3500)
