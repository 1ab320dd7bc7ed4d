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
