"""Logs of processes: bounded, read from the end, and removed with the instance."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nfagent.config import SshConfig
from nfagent.errors import LaunchError
from nfagent.launch import Launcher, Task, logs
from nfagent.launch.local import LocalLauncher
from nfagent.launch.ssh import SshLauncher
from nfagent.log_keeper import LogKeeper
from nfagent.store import Store, instances, migrations
from tests.nfagent import samples
from tests.nfagent.world import wait_until

KEY = "one.snic0"


def local(directory: Path) -> Launcher:
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
    keeper = LogKeeper(store, {"hypervisor": made, "snic0": made}, lambda _: False)
    keeper.look()
    assert sorted(each.name for each in (directory / "log").iterdir()) == sorted(names)
    store.close()


def test_a_disconnected_location_is_skipped(directory: Path) -> None:
    store = Store(directory / "state")
    asked: list[str] = []

    class Asked(LocalLauncher):
        def tend_logs(self, kept: Callable[[str], bool]) -> None:
            asked.append(str(self._runtime.name))
            raise LaunchError("no answer")

    places = {name: Asked(directory / name, directory / "log") for name in ("hypervisor", "snic0", "snic1")}
    LogKeeper(store, places, lambda name: name == "snic0").look()
    assert asked == ["hypervisor", "snic1"]
    store.close()
