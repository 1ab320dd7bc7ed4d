"""``uno-lab l7`` loses nothing, as an ordinary user, and leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.directory import ENVIRONMENT

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]

# Programs that run in the background pass it on that SIGINT is ignored.
CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ['uno-lab', 'l7', '--format=json']
from lab.cli import main
main()
"""
TITLES = ["web1 is killed", "web1 is back", "every request counted"]
LIMIT_S = 120


def processes_with(word: str) -> list[str]:
    """Return the command lines that contain a word."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if word.encode() in line:
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_requests_are_routed_and_none_is_lost(story_as_user) -> None:
    told = story_as_user("l7", "--format=json", timeout=LIMIT_S)
    assert all(each["holds"] for each in told["checks"])
    assert [each["title"] for each in told["checks"] if each["title"] in TITLES] == TITLES
    figures = told["figures"]
    assert (figures["lost"], figures["moves"]) == (0, 2)
    assert figures["requests"] > 500
    assert list(figures["unfinished_in_moves"].values()) == [20, 20, 20]
    assert [move["target"] for move in told["moves"]] == ["snic0", "hypervisor"]


def test_an_interrupt_leaves_nothing_behind(directory: Path) -> None:
    variables = os.environ | {ENVIRONMENT: f"{directory}/labs"}
    command = [sys.executable, "-u", "-c", CODE]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "nfagent and three web servers" in line:
                break
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=LIMIT_S)
    assert running.returncode != 0
    assert "Traceback" not in complained
    assert said == ""
    assert not (directory / "labs/l7").exists()
    assert processes_with(str(directory)) == []
