"""Logs of processes: bounded, read from the end, and removed with the instance."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nfagent.config import SshConfig
from nfagent.errors import InvalidError, LaunchError, UnavailableError
from nfagent.launch import Launcher, Task, logs
from nfagent.launch.local import LocalLauncher
from nfagent.launch.logs import Position
from nfagent.launch.ssh import SshLauncher
from nfagent.log_keeper import LogKeeper
from nfagent.log_reader import LogReader
from nfagent.model import View
from nfagent.store import Store, instances, migrations, processes
from tests.nfagent import samples
from tests.nfagent.test_told import LB, RUNNING
from tests.nfagent.world import wait_until

KEY = "one.snic0"


def local(directory: Path) -> LocalLauncher:
    return LocalLauncher(directory / "run", directory / "log")


def remote(directory: Path) -> Launcher:
    """Return a launcher that runs the scripts of ssh locally."""

    class Near(SshLauncher):
        def _command(self, *words: str, script: str = "") -> str:
            done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=False)
            if done.returncode:
                raise LaunchError(done.stderr)
            return done.stdout

    return Near("snic0", SshConfig(host="near", directory=str(directory / "log")), directory / "run")


@pytest.fixture(params=[local, remote])
def launcher(request: pytest.FixtureRequest, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    monkeypatch.setattr(logs, "MOST", 1000)
    monkeypatch.setattr(logs, "KEPT", 100)
    make: Callable[[Path], Launcher] = request.param
    return make(directory)


def test_a_log_is_truncated_while_its_process_runs(launcher: Launcher, directory: Path) -> None:
    more = directory / "more"
    script = f"seq 1000; until [ -e {more} ]; do sleep 0.02; done; echo the last word; exec sleep 1000"
    launcher.start(Task(KEY, "a", (), ("sh", "-c", script), "{}", {}))
    log = directory / "log" / f"{KEY}.log"
    try:
        wait_until(lambda: b"\n1000\n" in log.read_bytes())
        launcher.tend_logs(lambda _: False)  # running processes keep their logs, known or not
        assert log.read_bytes() == b""
        older = log.with_name(f"{KEY}.log.1")
        assert (older.stat().st_size, older.read_bytes().endswith(b"999\n1000\n")) == (100, True)
        assert older.stat().st_mode & 0o077 == 0
        more.touch()
        wait_until(lambda: b"last" in log.read_bytes())
        launcher.tend_logs(lambda _: True)
        assert launcher.last_words(KEY) == "it said: the last word"
    finally:
        launcher.stop(KEY, 0.0)
    launcher.tend_logs(lambda key: key == KEY)
    assert log.exists()
    launcher.tend_logs(lambda _: False)
    assert list((directory / "log").glob("*.log*")) == []


def test_last_words_are_read_from_the_end_of_the_log(directory: Path) -> None:
    made = local(directory)
    log = directory / "log" / f"{KEY}.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # too large to read into memory
        file.seek(0, 2)
        file.write(b"\xff\none\ntwo\nthree\n")
    assert made.last_words(KEY) == "it said: one / two / three"


def test_logs_are_removed_with_their_instance_and_migration(directory: Path) -> None:
    store, made = Store(directory / "state"), local(directory)
    instance = samples.instance("kept")
    with store.change() as change:
        instances.add(change, instance)
        epoch = migrations.request(change, instance, "hypervisor", "snic0", "state").epoch
    names = [f"{instance.id}.hypervisor.log", f"{instance.id}.snic0.log.1", f"keeper.{epoch}.log"]
    gone = ["0f8d3c4e.hypervisor.log", "0f8d3c4e.hypervisor.log.1", f"keeper.{epoch + 1}.log", "keeper.x.log"]
    for name in names + gone:
        (directory / "log" / name).write_text("said")
    keeper = LogKeeper(store, {"hypervisor": made, "snic0": made}, made, lambda _: False)
    keeper.look()
    assert sorted(each.name for each in (directory / "log").iterdir()) == sorted(names)
    store.close()


def test_logs_have_names_of_functions(directory: Path) -> None:
    store, made = Store(directory / "state"), local(directory)
    names = directory / "log/by-name"
    keeper = LogKeeper(store, {"hypervisor": made, "snic0": remote(directory)}, made, lambda _: False)

    def named() -> dict[str, str]:
        keeper.name()
        return {str(each.relative_to(names)): str(each.readlink()) for each in names.glob("*/*.log")}

    with store.change() as change:
        for name, project in (("lb", "acme"), ("lb", "../../../etc"), ("far", "acme"), ("idle", "acme")):
            instances.add(change, replace(samples.instance(name), id=f"{name}-{len(project)}", project=project))
        here = replace(RUNNING, incarnation="a", instance="lb-4", location="hypervisor", slot=None)
        processes.add(change, here)
        processes.add(change, replace(here, incarnation="b", instance="lb-12"))
        processes.add(change, replace(here, incarnation="c", instance="far-4", location="snic0"))
    (directory / "log/lb-4.hypervisor.log").write_text("said")
    there = "%2E%2E%2F%2E%2E%2F%2E%2E%2Fetc/lb.log"
    assert named() == {"acme/lb.log": "../../lb-4.hypervisor.log", there: "../../lb-12.hypervisor.log"}
    assert (names / "acme/lb.log").read_text() == "said"
    keeper.look()
    with store.change() as change:
        instances.describe(change, "lb-4", "renamed", {})
        processes.remove(change, replace(here, incarnation="b", instance="lb-12"))
    assert named() == {"acme/renamed.log": "../../lb-4.hypervisor.log"}
    assert [each.name for each in names.iterdir()] == ["acme"]
    store.close()


def test_a_disconnected_location_is_skipped(directory: Path) -> None:
    store = Store(directory / "state")
    asked: list[str] = []

    class Asked(LocalLauncher):
        def tend_logs(self, kept: Callable[[str], bool]) -> None:
            asked.append(str(self._runtime.name))
            raise LaunchError("no answer")

    places = {name: Asked(directory / name, directory / "log") for name in ("hypervisor", "snic0", "snic1")}
    LogKeeper(store, places, places["hypervisor"], lambda name: name == "snic0").look()
    assert asked == ["hypervisor", "snic1"]
    store.close()


def test_a_log_is_read_in_parts(launcher: Launcher, directory: Path) -> None:
    log = directory / "log" / f"{KEY}.log"
    assert launcher.read_log(KEY, None, 10) is None
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"0123456789\xff\n")
    first = launcher.read_log(KEY, None, 4)
    assert first is not None
    assert first.output == b"89\xff\n"
    assert launcher.read_log(KEY, first.end, 4) == replace(first, output=b"")
    assert launcher.read_log(KEY, None, 10, older=True) is None
    log.with_name(f"{KEY}.log.1").write_bytes(b"why it ended\n")
    before = launcher.read_log(KEY, None, 6, older=True)
    assert before is not None
    assert before.output == b"ended\n"
    with log.open("ab") as file:
        file.write(b"later")
    behind = launcher.read_log(KEY, first.end, 4)
    assert behind is not None
    assert (behind.output, behind.end.offset) == (b"late", 16)
    # A log that was truncated, and one of another process, begin again.
    for end in (Position(first.end.file, 1000), Position(first.end.file + 1, 3)):
        again = launcher.read_log(KEY, end, 4)
        assert again is not None
        assert again.output == b"0123"


@pytest.fixture
def reader(directory: Path) -> LogReader:
    made = local(directory)
    return LogReader({"hypervisor": made, "snic0": made}, lambda _: False)


def _view(location: str | None) -> View:
    return View(LB, "active", replace(RUNNING, location=location) if location else None, None)


def test_a_reader_follows_an_instance_to_its_next_location(reader: LogReader, directory: Path) -> None:
    (directory / "log" / f"{LB.id}.hypervisor.log").write_text("at the first\n")
    (directory / "log" / f"{LB.id}.snic0.log").write_text("at the second, which says more\n")
    first = reader.read(_view("hypervisor"), None, 1000)
    assert (first.text, first.more) == ("at the first\n", False)
    assert reader.read(_view("hypervisor"), first.position, 1000).text == ""
    second = reader.read(_view("snic0"), first.position, 14)
    assert (second.text, second.more) == ("at the second,", True)
    assert reader.read(_view("snic0"), second.position, 1000).text == " which says more\n"
    assert reader.read(_view(None), None, 1000).text == "at the first\n"


def test_parts_begin_with_a_line_and_end_with_a_character(reader: LogReader, directory: Path) -> None:
    log = directory / "log" / f"{LB.id}.snic0.log"
    log.write_bytes("old\nnew: \u00e9".encode() + b"\xff")
    begun = reader.read(_view("snic0"), None, 11)
    assert begun.text == "new: \u00e9\ufffd"
    log.write_bytes("\u00e9\u00e9".encode()[:3])
    cut = reader.read(_view("snic0"), None, 1000)
    assert cut.text == "\u00e9"
    log.write_bytes("\u00e9\u00e9".encode())
    assert reader.read(_view("snic0"), cut.position, 1000).text == "\u00e9"


def test_a_log_that_cannot_be_read_is_an_error(reader: LogReader, directory: Path) -> None:
    for wrong in ("", "x", "1-2", "1-2-3-4", "1-2-g"):
        with pytest.raises(InvalidError, match="position"):
            reader.read(_view("snic0"), wrong, 1000)
    down = LogReader({"snic0": local(directory)}, lambda _: True)
    with pytest.raises(UnavailableError, match="does not answer"):
        down.read(_view("snic0"), None, 1000)
    assert reader.read(_view("snic0"), None, 1000).text == ""
