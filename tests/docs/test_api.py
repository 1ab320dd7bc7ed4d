"""The examples of docs/api.md work, and it names every path of the interface."""

import json
import re
from pathlib import Path

import pytest

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from tests.docs import console

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/api.md"


@pytest.mark.namespaces
@pytest.mark.timeout(600)
def test_the_examples_of_the_page_work(lab_dir: Path) -> None:
    with (
        Lab(LabSpec.demo().with_slots(1), "uno").start() as lab,
        Oneswitchd(lab.server_toml) as oneswitchd,
        oneswitchd.client,
        AgentProcess(lab, lab.directory / "nfagent", {"decide": {"enabled": False}}) as agent,
    ):
        oneswitchd.wait_up()
        socket = agent.config.with_name("nfagent.sock")
        console.run(PAGE, lab_dir, variables={}, replace={"/run/nfagent/nfagent.sock": str(socket)})


def test_every_path_is_on_the_page() -> None:
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    asked = [each.text for each in console.commands(PAGE, also_elsewhere=True)]
    for path, methods in document["paths"].items():
        if not path.startswith("/api/v1/"):
            continue
        pattern = re.sub(r"\\{\w+\\}", r"[$\\w-]+", re.escape(path.removeprefix("/api/v1/")))
        found = [text for text in asked if re.search(rf"(api |v1/)[\"']?{pattern}(?![\w/-])", text)]
        assert found, f"{path} is not on the page"
        for method in set(methods) & {"patch", "delete"}:
            assert any(f"-X {method.upper()}" in text for text in found), f"{method} {path} is not on the page"
        if "post" in methods:
            assert any("--json" in text and "-X" not in text for text in found), f"post {path} is not on the page"
