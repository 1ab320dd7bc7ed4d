"""agent.toml and tokens: errors name the file, the line and the key."""

import os
import uuid
from pathlib import Path

import pytest

from nfagent.capacity import capacities
from nfagent.config import SOCKET_PATH_MAX, AgentConfig
from server.errors import ConfigFaultError
from tests.nfagent.world import write_files

SLOT = '[[location]]\nswitch = "a"\nslot = [{ name = "s", wires = [{ edge = "x", inside = "y" }]'


def test_every_key_has_a_default() -> None:
    config = AgentConfig.parse("")
    assert config.api.listen == ["unix:/run/nfagent/nfagent.sock"]
    assert list(config.flavors()) == ["small", "medium", "large"]
    assert config.find_location("anywhere").slot == []


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("colour = 1", 1, "colour", "not a known key"),
        ("server = 1", 1, "server", "string"),
        ('server = "server.toml"', 1, "server", "not an absolute path"),
        ("\n[api]\nlisten = []", 3, "api.listen", "at least 1"),
        ('[api]\nlisten = ["ftp:x"]', 2, "api.listen[0]", "expected unix:/PATH, tcp:HOST:PORT or tls:HOST:PORT"),
        ('[api]\nlisten = ["unix:run"]', 2, "api.listen[0]", "not an address"),
        ('[api]\nlisten = ["tcp:127.0.0.1:99999"]', 2, "api.listen[0]", "not an address"),
        ('[api]\nlisten = ["tcp:127.0.0.1:1"]', 2, "api.listen[0]", "would be unusable"),
        ('[api]\nanonymous = "admin"\nlisten = ["tcp:0.0.0.0:1"]', 3, "api.listen[0]", "not on the loopback interface"),
        ('[api]\nanonymous = "root"', 2, "api.anonymous", "nobody"),
        ("[quota]\nports = -1", 2, "quota.ports", "greater than or equal"),
        ("[port_numbers]\nfirst = 5\nlast = 4", 2, "port_numbers.first", "above last (4)"),
        ("[port_numbers]\nlast = 65024", 2, "port_numbers.last", "65023"),
        ("[monitor]\nperiod_s = 0", 2, "monitor.period_s", "greater than or equal"),
        ("[decide]\nwindow = 0", 2, "decide.window", "greater than or equal"),
        ("[decide]\neps = 1.5", 2, "decide.eps", "less than or equal"),
        ("[decide]\ncalm = 1", 2, "decide.calm", "not a known key"),
        ('[[location]]\nswitch = "a"\ncores = 0', 3, "location[0].cores", "greater than or equal"),
        ('[[location]]\nswitch = "a"\npcie_mbps = 1.5', 3, "location[0].pcie_mbps", "integer"),
        ('[[location]]\nswitch = "a"\ncore_factor = -1', 3, "location[0].core_factor", "greater than or equal"),
        ('[[kind]]\nname = "a"', 1, "kind[0].command", "missing"),
        ('[[kind]]\nname = "a b"\ncommand = ["x"]', 2, "kind[0].name", "pattern"),
        ('[[kind]]\nname = "a"\ncommand = ["x"]\nports = [2, 1]', 4, "kind[0].ports", "expected the minimum first"),
        (
            '[[kind]]\nname = "a"\ncommand = ["x"]\n[[kind]]\nname = "a"\ncommand = ["x"]',
            5,
            "kind[1].name",
            "given twice",
        ),
        ('[[location]]\nswitch = "a"\n[[location]]\nswitch = "a"', 4, "location[1].switch", "given twice"),
        (SLOT + ', netns = "/n", enter = ["e"] }]', 3, "location[0].slot[0].enter", "excludes netns"),
        (
            SLOT + ' }, { name = "s", wires = [{ edge = "z", inside = "y" }] }]',
            3,
            "location[0].slot[0].name",
            "another",
        ),
        (SLOT + ' }, { name = "t", wires = [{ edge = "x", inside = "y" }] }]', 3, "location[0].slot[0].wires", "'x'"),
    ],
)
def test_errors_name_the_line_and_the_key(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(ConfigFaultError) as error:
        AgentConfig.parse(text, Path("agent.toml"))
    assert (error.value.line, error.value.key) == (line, key)
    assert words in error.value.problem
    assert str(error.value).startswith(f"agent.toml:{line}: {key}: ")


def test_locations_and_sockets_fit_the_server(directory: Path) -> None:
    path = write_files(directory)
    text = path.read_text()
    with pytest.raises(ConfigFaultError, match=r"has no switch 'moon'; it has hypervisor, snic0"):
        AgentConfig.parse(text.replace('switch = "snic0"', 'switch = "moon"')).load_server(path)
    for key in ("pcie_mbps = 1000", "core_factor = 2.0"):
        with pytest.raises(ConfigFaultError, match=rf"location\[0\]\.{key.split()[0]}: hypervisor is the hypervisor"):
            AgentConfig.parse(text.replace('switch = "hypervisor"', f'switch = "hypervisor"\n{key}')).load_server(path)
    with pytest.raises(ConfigFaultError, match=r"runtime: .*is too long"):
        AgentConfig.parse(text.replace("/run", "/" + "r" * 60)).load_server(path)
    rest = f"/{uuid.UUID(int=0)}.hypervisor.state"  # the socket for copied state has the longest path
    fits = f"{directory}/".ljust(SOCKET_PATH_MAX - len(rest), "r")
    AgentConfig.parse(text.replace(f"{directory}/run", fits)).load_server(path)
    with pytest.raises(ConfigFaultError, match=r"runtime: .*is too long"):
        AgentConfig.parse(text.replace(f"{directory}/run", f"{fits}r")).load_server(path)
    (directory / "server.toml").unlink()
    with pytest.raises(ConfigFaultError, match=r"server\.toml: cannot be read"):
        AgentConfig.load(path).load_server(path)


def test_capacities_of_locations_are_configured_or_guessed(directory: Path) -> None:
    path = write_files(directory)
    config = AgentConfig.load(path)
    server = config.load_server(path)
    host, nic = capacities(config, server).values()
    assert (host.millicores, host.pcie_mbps, host.location_class) == (1000 * (os.cpu_count() or 1), None, "host")
    assert (nic.millicores, nic.pcie_mbps, nic.core_factor, nic.slots) == (4000, 10_000, 2.0, {"s1": 1})
    said = path.read_text().replace(
        'switch = "snic0"', 'switch = "snic0"\ncores = 1.5\nmemory_mb = 512\npcie_mbps = 500'
    )
    _, nic = capacities(AgentConfig.parse(said), server).values()
    assert (nic.millicores, nic.memory_mb, nic.pcie_mbps) == (1500, 512, 500)
