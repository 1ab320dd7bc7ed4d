"""``unoctl nf assets``: hosts as a table, lines once each, also while following them."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from server.errors import ApiRefusedError
from unoctl.cli import app
from unoctl.nf import commands
from unoctl.nf.client import NfClient

ID = "6f1f1c52-8c5e-4c38-9f0e-0d6c5ba2a001"
SERVER = {"protocol": "tcp", "port": 80, "role": "server", "application": "nginx 1.22"}
CLIENT = {"protocol": "udp", "port": 53, "role": "client", "application": "@domain"}
HOST = {"address": "10.0.0.1", "mac": "02:00:00:00:00:01", "vendor": "Test", "services": [SERVER, CLIENT]}
HOST |= {"systems": [{"system": None}, {"system": "Linux 2.6"}]}
BARE = {"address": "10.0.0.2", "mac": None, "vendor": None, "services": [], "systems": []}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Take the place of nfagent: hosts in two pages, and what each request for lines gets."""
    made: dict[str, list[dict[str, Any]]] = {"lines": [], "moves": []}

    def get(_: NfClient, path: str) -> dict[str, Any]:
        if path == "instances/watch":
            return {"id": ID}
        if path.startswith(f"instances/{ID}/assets/lines?"):
            if made["moves"]:
                made["moves"].pop()
                raise ApiRefusedError(503, "assets-unavailable", "watch does not answer now", "nfagent")
            after = int(path.split("after=")[1].split("&", maxsplit=1)[0])
            return {"lines": [each for each in made["lines"] if each["number"] > after][:2]}
        pages = {"start=0&": {"hosts": [HOST], "next": 7}, "start=7&": {"hosts": [BARE], "next": None}}
        [page] = [page for start, page in pages.items() if start in path]
        return page

    monkeypatch.setattr(NfClient, "_get", get)
    return made


def run(*arguments: str) -> Result:
    variables = {"UNO_LAB_DIR": "/nonexistent", "NFAGENT_API": "unix:/nonexistent", "COLUMNS": "200"}
    return CliRunner().invoke(app, ["nf", "assets", "watch", *arguments], env=variables)


def test_hosts_of_all_pages_are_listed(answers: dict[str, list[dict[str, Any]]]) -> None:
    printed = run().stdout.splitlines()
    assert [line.split()[0] for line in printed] == ["ADDRESS", "10.0.0.1", "10.0.0.2"]
    for words in ("02:00:00:00:00:01", "Test", "Linux 2.6", "80/tcp nginx 1.22, to 53/udp @domain"):
        assert words in printed[1]


def test_each_line_is_printed_once(answers: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch) -> None:
    answers["lines"] = [{"number": number, "line": f"line {number}"} for number in range(3, 8)]
    told = "".join(f"line {number}\n" for number in range(3, 8))
    assert run("--lines").stdout == told
    waits = 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 2:
            raise KeyboardInterrupt
        answers["lines"].append({"number": 8, "line": "line 8"})

    monkeypatch.setattr(commands.time, "sleep", wait)
    followed = run("-f")
    assert (followed.exit_code, followed.stdout) == (130, told + "line 8\n")


def test_following_goes_on_after_a_move(
    answers: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["lines"] = [{"number": 1, "line": "line 1"}]
    answers["moves"] = [{}]
    assert run("--lines").exit_code == 1
    answers["moves"] = [{}, {}]
    waits = iter([None, None])

    def wait(_: float) -> None:
        try:
            next(waits)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(commands.time, "sleep", wait)
    followed = run("-f")
    assert (followed.exit_code, followed.stdout) == (130, "line 1\n")
