"""agent.toml and tokens: every error names the file, and the line and key where there are any."""

from pathlib import Path

import pytest

from nfagent.api.access import Access
from nfagent.config import AgentConfig
from nfagent.plumbing.errors import ConfigError
from tests.nfagent.world import write_files

SLOT = '[[location]]\nswitch = "a"\nslot = [{ name = "s", wires = [{ edge = "x", inside = "y" }]'


def test_nothing_needs_to_be_said() -> None:
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
        ('[api]\nlisten = ["ftp:x"]', 2, "api.listen[0]", "expected unix:/PATH or tcp:HOST:PORT"),
        ('[api]\nlisten = ["unix:run"]', 2, "api.listen[0]", "not an address"),
        ('[api]\nlisten = ["tcp:127.0.0.1:99999"]', 2, "api.listen[0]", "not an address"),
        ('[api]\nlisten = ["tcp:127.0.0.1:1"]', 2, "api.listen[0]", "nobody could use"),
        ('[api]\nanonymous = "admin"\nlisten = ["tcp:0.0.0.0:1"]', 3, "api.listen[0]", "not on the loopback interface"),
        ('[api]\nanonymous = "root"', 2, "api.anonymous", "nobody"),
        ("[quota]\nports = -1", 2, "quota.ports", "greater than or equal"),
        ("[port_numbers]\nfirst = 5\nlast = 4", 2, "port_numbers.first", "above last (4)"),
        ("[port_numbers]\nlast = 65024", 2, "port_numbers.last", "65023"),
        ('[[kind]]\nname = "a"', 1, "kind[0].command", "missing"),
        ('[[kind]]\nname = "a b"\ncommand = ["x"]', 2, "kind[0].name", "pattern"),
        ('[[kind]]\nname = "a"\ncommand = ["x"]\nports = [2, 1]', 4, "kind[0].ports", "the least comes first"),
        (
            '[[kind]]\nname = "a"\ncommand = ["x"]\n[[kind]]\nname = "a"\ncommand = ["x"]',
            5,
            "kind[1].name",
            "given twice",
        ),
        ('[[location]]\nswitch = "a"\n[[location]]\nswitch = "a"', 4, "location[1].switch", "given twice"),
        (SLOT + ', netns = "/n", enter = ["e"] }]', 3, "location[0].slot[0].enter", "without netns"),
        (
            SLOT + ' }, { name = "s", wires = [{ edge = "z", inside = "y" }] }]',
            3,
            "location[0].slot[0].name",
            "another",
        ),
        (SLOT + ' }, { name = "t", wires = [{ edge = "x", inside = "y" }] }]', 3, "location[0].slot[0].wires", "'x'"),
    ],
)
def test_errors_name_line_and_key(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        AgentConfig.parse(text, Path("agent.toml"))
    assert (error.value.line, error.value.key) == (line, key)
    assert words in error.value.problem
    assert str(error.value).startswith(f"agent.toml:{line}: {key}: ")


def test_locations_and_sockets_fit_the_server(directory: Path) -> None:
    path = write_files(directory)
    text = path.read_text()
    with pytest.raises(ConfigError, match=r"has no switch 'moon'; it has hypervisor, snic0"):
        AgentConfig.parse(text.replace('switch = "snic0"', 'switch = "moon"')).load_server(path)
    with pytest.raises(ConfigError, match=r"runtime: .*is too long"):
        AgentConfig.parse(text.replace("/run", "/" + "r" * 60)).load_server(path)
    (directory / "server.toml").unlink()
    with pytest.raises(ConfigError, match=r"server\.toml: cannot be read"):
        AgentConfig.load(path).load_server(path)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("acme tenant 0123456789abcdef", 0o644, "others can read"),
        ("acme tenant", 0o600, "tokens:1: expected PROJECT tenant|admin TOKEN"),
        ("\nacme root 0123456789abcdef", 0o600, "tokens:2: expected PROJECT tenant|admin TOKEN"),
        ("acme tenant short", 0o600, "tokens:1: a token of 5 characters"),
    ],
)
def test_tokens_that_cannot_be_used(directory: Path, text: str, mode: int, words: str) -> None:
    path = directory / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError) as error:
        Access(path, "nobody")
    assert words in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        Access(directory / "none", "nobody")
