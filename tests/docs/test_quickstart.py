"""The commands of docs/quickstart.md work."""

import os
import sys
from pathlib import Path

import pytest

from lab.control_plane import free_port
from tests.docs import console

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/quickstart.md"

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(600)]


def test_the_commands_of_the_quickstart_work(lab_dir: Path) -> None:
    programs = Path(sys.executable).parent
    replace = {
        "/tmp/uno-lab-$UID": str(lab_dir),
        "6653": str(free_port()),
        ".venv/bin/activate": str(programs / "activate"),
    }
    console.run(PAGE, ROOT, variables={"PATH": f"{programs}:{os.environ['PATH']}"}, replace=replace)
