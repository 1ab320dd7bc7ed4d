from pathlib import Path

import pytest

from server.config import ENVIRONMENT, PciePort, ServerConfig, default_path
from server.config_faults import line_of as line_of_key
from server.errors import ConfigFaultError

GOOD = """\
[oneswitchd]
datapath_id = "00000000000000ab"             # 16 hex digits
listen      = ["ptcp:6653:127.0.0.1",
               "punix:/run/oneswitch/oneswitchd.mgmt"]
controllers = ["tcp:127.0.0.1:6633", "ssl:[::1]"]

[oneswitchd.tls]
private_key = "k.pem"
certificate = "c.pem"
ca_certificate = "ca.pem"

[[switch]]
name = "hypervisor"
virt = "unix:/run/openvswitch/virt.mgmt"
edge = "unix:/run/openvswitch/edge.mgmt"
ovsdb = "unix:/run/openvswitch/db.sock"

[[switch]]
name = "snic0"
virt = "tcp:192.168.100.2:6640"
edge = "tcp:192.168.100.2:6641"
link = { hypervisor = "pcie-snic0", local = "pf0hpf" }

[[port]]
number = 1
name = "first"
switch = "hypervisor"
interface = "vm1"

[[port]]
number = 2
switch = "snic0"
interface = "pf0vf0"
"""


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_the_example_of_the_contract_is_read() -> None:
    config = ServerConfig.parse(GOOD)
    assert config.hypervisor.name == "hypervisor"
    assert [snic.name for snic in config.snics] == ["snic0"]
    assert [port.shown_name for port in config.port] == ["first", "pf0vf0"]
    assert config.pcie_ports("hypervisor") == [PciePort("pcie-snic0", "snic0", "pf0hpf")]
    assert config.pcie_ports("snic0") == [PciePort("pf0hpf", "hypervisor", "pcie-snic0")]
    assert config.oneswitchd.log == "info"


def test_a_dumped_configuration_is_read_back_unchanged() -> None:
    config = ServerConfig.parse(GOOD)
    assert ServerConfig.parse(config.dump()) == config


CASES = {
    "unknown key": ("datapath_id", "datapath_ids", "oneswitchd.datapath_ids"),
    "unknown table": ("[oneswitchd.tls]", "[oneswitchd.tsl]", "oneswitchd.tsl"),
    "unknown key in an inline table": ('local = "pf0hpf"', 'locl = "pf0hpf"', "switch[1].link.locl"),
    "wrong type": ("number = 1\n", 'number = "1"\n', "port[0].number"),
    "boolean for a number": ("number = 1\n", "number = true\n", "port[0].number"),
    "number too large": ("number = 1\n", "number = 65024\n", "port[0].number"),
    "number zero": ("number = 1\n", "number = 0\n", "port[0].number"),
    "number twice": ("number = 2\n", "number = 1\n", "port[1].number"),
    "key twice": ('name = "first"', 'name = "first"\nname = "second"', "name"),
    "name twice": ('interface = "pf0vf0"', 'interface = "pf0vf0"\nname = "first"', "port[1].name"),
    "switch twice": ('name = "snic0"', 'name = "hypervisor"', "switch[1].name"),
    "one address for two bridges": ("100.2:6641", "100.2:6640", "switch[1].edge"),
    "interface of 16 bytes": ('interface = "vm1"', 'interface = "vm12345678901234"', "port[0].interface"),
    "interface of 15 characters but 16 bytes": (
        'interface = "vm1"',
        'interface = "vm123456789012é"',
        "port[0].interface",
    ),
    "interface name reserved": ('interface = "vm1"', 'interface = "edge-1"', "port[0].interface"),
    "interface is the PCIe port": ('interface = "vm1"', 'interface = "pcie-snic0"', "port[0].interface"),
    "port on no switch": ('switch = "snic0"', 'switch = "snic9"', "port[1].switch"),
    "link missing": ('link = { hypervisor = "pcie-snic0", local = "pf0hpf" }', "", "switch[1].link"),
    "link on the hypervisor": (
        'ovsdb = "unix:/run/openvswitch/db.sock"',
        'link = { hypervisor = "a", local = "b" }',
        "switch[0].link",
    ),
    "address without a kind": ('"tcp:192.168.100.2:6640"', '"192.168.100.2:6640"', "switch[1].virt"),
    "passive address where one connects": ('"tcp:127.0.0.1:6633"', '"ptcp:6633"', "oneswitchd.controllers[0]"),
    "active address where one listens": ('"punix:/run', '"unix:/run', "oneswitchd.listen[1]"),
    "API on TCP without a token": ('"ssl:[::1]"]', '"ssl:[::1]"]\napi = "tcp:127.0.0.1:1"', "oneswitchd.api"),
    "token for a unix socket": ('"ssl:[::1]"]', '"ssl:[::1]"]\napi_token_file = "t"', "oneswitchd.api_token_file"),
    "TCP port out of range": ("ptcp:6653", "ptcp:66533", "oneswitchd.listen[0]"),
    "datapath id too short": ('"00000000000000ab"', '"ab"', "oneswitchd.datapath_id"),
    "a table for an array of tables": ("[[port]]\nnumber = 1\n", "[port]\nnumber = 1\n", "port"),
}


@pytest.mark.parametrize(("old", "new", "key"), CASES.values(), ids=CASES.keys())
def test_a_fault_names_file_line_and_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    text = GOOD.replace(old, new, 1)
    if old.startswith("[[port]]"):
        text = text[: text.index("[[port]]")]
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigFaultError) as caught:
        ServerConfig.load(path)
    error = caught.value
    assert error.key == key
    assert error.path == path
    assert str(error).startswith(f"{path}:{error.line}: {key}: ")
    if new:
        lines_before = 0 if new.startswith("[") else len(new.splitlines()) - 1
        assert error.line == line_of(GOOD, old) + lines_before


def test_missing_key_is_reported_at_its_table() -> None:
    text = GOOD.replace("number = 2\n", "")
    with pytest.raises(ConfigFaultError, match=r"port\[1\]\.number: is missing") as caught:
        ServerConfig.parse(text)
    assert caught.value.line == line_of(text, '[[port]]\nswitch = "snic0"')


def test_the_first_fault_in_the_file_is_the_one_reported() -> None:
    text = GOOD.replace("number = 1\n", 'number = "x"\n').replace('"c.pem"', "7")
    with pytest.raises(ConfigFaultError, match="certificate"):
        ServerConfig.parse(text)


def test_a_file_that_is_not_toml_is_refused() -> None:
    with pytest.raises(ConfigFaultError, match="is not TOML") as caught:
        ServerConfig.parse(GOOD.replace("number = 1\n", "number 1\n"))
    assert caught.value.line == line_of(GOOD, "number = 1")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaultError, match="cannot be read: No such file") as caught:
        ServerConfig.load(tmp_path / "absent.toml")
    assert caught.value.line is None


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert default_path() == Path("/etc/oneswitch/server.toml")
    (tmp_path / "s.toml").write_text(GOOD)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "s.toml"))
    loaded = ServerConfig.load()
    assert loaded.path == tmp_path / "s.toml"
    assert loaded.dump() == ServerConfig.parse(GOOD).dump()


def test_strings_and_comments_do_not_hide_the_line_of_a_key() -> None:
    text = """\
a = "x # [not] = { a" # b = 1
'q.k' = '''
c = 3
''''
[t."d.e"]
f = [
  1, # one
  { g = "]" },
]
[[t.h]]
i = 1
[[t.h]]
i = { j.k = 2 }
[t.h.l]
m = 0
"""
    lines = {
        ("a",): 1,
        ("q.k",): 2,
        ("t", "d.e", "f"): 6,
        ("t", "d.e", "f", 1, "g"): 8,
        ("t", "h", 1): 12,
        ("t", "h", 1, "i", "j", "k"): 13,
        ("t", "h", 1, "i", "missing"): 13,
        ("t", "h", 1, "l", "m"): 15,
        ("c",): 1,
    }
    assert {where: line_of_key(text, where) for where in lines} == lines
