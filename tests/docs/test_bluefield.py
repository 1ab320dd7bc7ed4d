"""The programs accept the configuration files of docs/bluefield.md."""

import subprocess
import sys
from pathlib import Path

from nfagent.config import AgentConfig
from server.config import ServerConfig
from tests.docs import console

PAGE = Path(__file__).resolve().parents[2] / "docs/bluefield.md"


def test_the_programs_accept_both_files(tmp_path: Path) -> None:
    server, agent = (block.text for block in console.blocks(PAGE) if block.language == "toml")
    path = tmp_path / "server.toml"
    # The directory of its state and journal need not exist here.
    path.write_text(server.replace("/var/lib/oneswitch", str(tmp_path)))
    config = ServerConfig.load(path)
    assert [port.interface for name in ("hypervisor", "snic0") for port in config.pcie_ports(name)] == [
        "enp3s0f0np0",
        "pf0hpf",
    ]
    program = Path(sys.executable).with_name("oneswitchd")
    done = subprocess.run([program, "--check", "--config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    settings = AgentConfig.parse(agent.replace("/etc/oneswitch/server.toml", str(path)))
    settings.load_server(tmp_path / "agent.toml")
    found = settings.find_location("snic0")
    assert found.ssh is not None
    assert found.ssh.host == "root@192.168.100.2"
    assert [slot.name for slot in found.slot] == ["sf4"]
