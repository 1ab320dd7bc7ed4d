"""The choice of a command's configuration file."""

import os
from pathlib import Path

import pytest

from server import discovery
from server.errors import ConfigChoiceError, ConfigError


@pytest.fixture
def labs(tmp_path: Path) -> dict[str, str]:
    return {"UNO_LAB_DIR": str(tmp_path / "labs")}


def make_lab(environment: dict[str, str], name: str, record: str | None = None) -> Path:
    folder = Path(environment["UNO_LAB_DIR"]) / name
    folder.mkdir(parents=True)
    (folder / "server.toml").touch()
    if record is not None:
        (folder / "lab.json").write_text(record)
    return folder / "server.toml"


def find(environment: dict[str, str], tmp_path: Path, **named: object) -> discovery.Found:
    config, lab = named.get("config"), named.get("lab")
    assert config is None or isinstance(config, Path)
    assert lab is None or isinstance(lab, str)
    return discovery.find(config, lab, environment, tmp_path / "system.toml")


def test_an_explicit_name_takes_precedence(labs: dict[str, str], tmp_path: Path) -> None:
    lab, system, named, other = make_lab(labs, "a"), tmp_path / "system.toml", tmp_path / "n.toml", tmp_path / "o.toml"
    for path in (system, named, other):
        path.touch()
    labs["ONESWITCH_CONFIG"] = str(other)
    assert find(labs, tmp_path, config=named).path == named
    assert find(labs, tmp_path, lab="a").path == lab
    assert find(labs, tmp_path).path == other
    del labs["ONESWITCH_CONFIG"]
    assert find(labs, tmp_path).path == system
    system.unlink()
    found = find(labs, tmp_path)
    assert (found.path, found.chosen) == (lab, True)


def test_several_labs_are_listed(labs: dict[str, str], tmp_path: Path) -> None:
    make_lab(labs, "one")
    make_lab(labs, "two")
    with pytest.raises(ConfigChoiceError, match="several labs are running; choose one: --lab one, --lab two") as caught:
        find(labs, tmp_path)
    assert caught.value.exit_status == 2


def test_without_any_configuration_the_error_lists_all_places(labs: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigChoiceError, match="start a lab with: uno-lab up"):
        find(labs, tmp_path)


def test_a_stopped_lab_is_reported(labs: dict[str, str], tmp_path: Path) -> None:
    make_lab(labs, "one")
    with pytest.raises(ConfigChoiceError, match=r"lab 'two' is not running under .*; --lab one"):
        find(labs, tmp_path, lab="two")


def test_a_missing_file_is_reported(labs: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: no such file \(named by --config\)"):
        find(labs, tmp_path, config=tmp_path / "gone.toml")
    labs["ONESWITCH_CONFIG"] = str(tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="named by ONESWITCH_CONFIG"):
        find(labs, tmp_path)


def test_an_unreadable_file_is_reported(labs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", forbidden)
    with pytest.raises(ConfigError, match=r"server\.toml: Permission denied \(named by --config\)"):
        find(labs, tmp_path, config=tmp_path / "server.toml")


def test_remains_of_a_lab_are_ignored(labs: dict[str, str], tmp_path: Path) -> None:
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    alive = make_lab(labs, "alive", f'{{"pid": {os.getpid()}, "start_time": {start}}}')
    make_lab(labs, "reused", f'{{"pid": {os.getpid()}, "start_time": 1}}')
    make_lab(labs, "dead", '{"pid": 4194305, "start_time": 1}')
    make_lab(labs, "broken", "{")
    assert discovery.labs(labs) == {"alive": alive}
    assert find(labs, tmp_path).reason == "the only running lab, alive"


def test_labs_have_a_default_directory() -> None:
    assert discovery.lab_root({}) == Path(f"/tmp/uno-lab-{os.geteuid()}")
