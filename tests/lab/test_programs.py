"""Programs and files that the lab finds."""

from importlib.metadata import PackagePath
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import programs
from lab.errors import StartError


def test_examples_are_those_of_the_clone() -> None:
    assert programs.find_example("service_chain.py") == Path(__file__).parents[2] / "examples/service_chain.py"


def test_an_installed_package_brings_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib/site-packages"
    listed = PackagePath("../../share/uno-server/examples/service_chain.py")
    listed.dist = SimpleNamespace(locate_file=lambda path: site / path)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(programs, "files", lambda name: [listed])
    monkeypatch.setattr(programs, "__file__", str(site / "lab/programs.py"))
    assert programs.find_example("service_chain.py") == tmp_path / "share/uno-server/examples/service_chain.py"
    with pytest.raises(StartError, match=r"other\.py is neither in"):
        programs.find_example("other.py")


def test_a_program_is_typed_by_its_name_only_where_path_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "venv/bin/uno-lab"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(programs.sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    assert programs.typed("uno-lab") == "venv/bin/uno-lab"
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path / "bin")
    assert programs.typed("uno-lab") == str(own)
    (tmp_path / "bin/uno-lab").symlink_to(own)
    assert programs.typed("uno-lab") == "uno-lab"
