"""Processes on this machine, in its own network namespace or in another."""

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nfagent.errors import LaunchError
from nfagent.launch import CONFIG_WORD, Examined, Places, Process, Task, logs
from nfagent.launch.shell import LOCK_FD, become_script
from nfagent.reasons import AT_ONCE
from server.processes import PROC, start_time

_ABOVE = 64
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_KEPT_VARIABLES = ("LANG", "HOME", "TMPDIR", "PYTHONPATH")
_LAST_WORDS = 600
_CALL_S = 20.0
_SETTLE_S = 5.0
_POLL_S = 0.01
_NOT_FOUND = 127  # of a shell


class LocalLauncher:
    """See `nfagent.launch.Launcher`.

    Args:
        runtime: directory of locks, sockets and configurations; on a tmpfs it ends with the machine, as processes do.
        logs: directory of the processes' output.
        offload: path of oneswitchd's offload socket; None: it has none.
    """

    def __init__(self, runtime: Path, logs: Path, offload: str | None = None) -> None:
        self._runtime = runtime
        self._logs = logs
        self._offload = offload
        # A process that is being started shares this one's descriptors until it has executed its program, and must not
        # inherit a lock that is only being checked, however briefly.
        self._forking = threading.Lock()
        for directory in (runtime, logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def places(self, key: str, interfaces: tuple[str, ...]) -> Places:
        return Places(str(self._path(key, "json")), str(self.control_path(key)), interfaces, self._offload)

    def control_path(self, key: str) -> Path:
        return self._path(key, "sock")

    def start(self, task: Task) -> Process:
        try:
            found = self.find(task.key)
            if found is not None and found.incarnation == task.incarnation:
                return found
            if self._is_held(task.key):
                self.stop(task.key, 0.0)
            _write(self._path(task.key, "json"), task.config)
            self._path(task.key, "sock").unlink(missing_ok=True)
            with self._forking, self._locked(task.key) as lock:
                os.ftruncate(lock, 0)
                pid = self._spawn(task, lock)
        except OSError as error:
            raise LaunchError(f"{task.key}: {task.command[0]} cannot start: {error}") from error
        return self._noted(task, pid)

    def _spawn(self, task: Task, lock: int) -> int:
        log = self._logs / f"{task.key}.log"
        with contextlib.suppress(FileNotFoundError):
            log.replace(log.with_suffix(".log.1"))  # its predecessor's output is not its own
        argv = ["/bin/sh", "-c", become_script(task.enter), task.incarnation, *task.enter, *task.command]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with contextlib.ExitStack() as ends:
            passed: dict[int, int] = {}
            for new, old in task.descriptors.items():
                # Duplicate to numbers above all new ones first, because the actions run in turn.
                passed[new] = fcntl.fcntl(old, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
                ends.callback(os.close, passed[new])
            return os.posix_spawn(
                argv[0],
                argv,
                _environment() | task.variables,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, lock, LOCK_FD),
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    *((os.POSIX_SPAWN_DUP2, old, new) for new, old in passed.items()),
                ],
                setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM),
                setsigmask=(),
            )

    def _noted(self, task: Task, pid: int) -> Process:
        """Return the spawned process once it has recorded itself."""
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline:
            found = self.find(task.key)
            if found is not None:
                return found
            if start_time(pid) is None:
                break
            time.sleep(_POLL_S)
        raise LaunchError(f"{task.key}: {AT_ONCE}{_ending(pid)}; {self.last_words(task.key)}")

    def find(self, key: str) -> Process | None:
        deadline = time.monotonic() + _SETTLE_S
        while self._is_held(key):
            noted = self._note(key)
            if noted is not None:
                number, incarnation = noted
                started = start_time(number)
                # Without the process itself only its children are left, which `stop` ends.
                return None if started is None else Process(number, started, incarnation)
            # It was spawned a moment ago and has not written its id yet.
            if time.monotonic() > deadline:
                raise LaunchError(f"{self._path(key, 'lock')} is locked, but does not name its process")
            time.sleep(_POLL_S)
        return None

    def stop(self, key: str, grace_s: float) -> None:
        noted = self._note(key)
        if noted is not None and self._is_held(key):
            # While a process of its session lives, its id is not reused.
            _signal(noted[0], signal.SIGTERM)
            self._await_released(key, grace_s)
            _signal(noted[0], signal.SIGKILL)
        self._await_released(key, _SETTLE_S if noted else 0.0)
        if self._is_held(key):
            self._end_holders(key)
        if noted is not None:
            _ending(noted[0])
        # A draft remains if the agent was killed while it wrote the configuration.
        for suffix in ("sock", "json", "draft", "lock"):
            self._path(key, suffix).unlink(missing_ok=True)

    def kill(self, key: str, incarnation: str) -> None:
        noted = self._note(key)
        if noted is not None and noted[1] == incarnation and self._is_held(key):
            _signal(noted[0], signal.SIGKILL)
            self._await_released(key, _SETTLE_S)

    def _end_holders(self, key: str) -> None:
        """End processes that have left the session of their process."""
        lock = self._path(key, "lock")
        for pid in _holders(lock):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._await_released(key, _SETTLE_S):
            raise LaunchError(f"{key}: processes {_holders(lock)} do not end; they hold {lock}")

    def all_keys(self) -> list[str]:
        return sorted(path.stem for path in self._runtime.glob("*.lock"))

    def last_words(self, key: str) -> str:
        try:
            text = logs.tail(self._logs / f"{key}.log", _LAST_WORDS).decode(errors="replace").strip()
        except OSError:
            text = ""
        lines = " / ".join(text.splitlines()[-3:])
        return f"it said: {lines}" if lines else "it said nothing"

    def read_log(self, key: str, after: logs.Position | None, most: int, *, older: bool = False) -> logs.Part | None:
        try:
            return logs.part(self._logs / f"{key}{logs.OLDER if older else logs.NEWER}", after, most)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LaunchError(f"{key}: its log cannot be read: {error}") from error

    def tend_logs(self, kept: Callable[[str], bool]) -> None:
        for path in self._logs.glob("*.log*"):
            key = logs.key_of(path.name)
            with contextlib.suppress(FileNotFoundError):  # its process is being restarted and renames the log
                if not kept(key) and not self._is_held(key):
                    path.unlink()
                elif path.suffix == ".log":
                    logs.cut(path)

    def name_logs(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Let people find these logs, and no others, by project and name of the function; see `logs.name`."""
        logs.name(self._logs, keys)

    def ending(self, process: Process) -> str:
        return _ending(process.pid)

    def call(self, enter: tuple[str, ...], command: list[str]) -> None:
        argv = [*enter, *command]
        try:
            with self._forking:
                process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=_environment())
            with process:
                try:
                    _, said = process.communicate(timeout=_CALL_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchError(f"{' '.join(argv)}: {error}") from error
        if process.returncode != 0:
            raise LaunchError(f"{' '.join(argv)}: {said.strip() or f'exit status {process.returncode}'}")

    def examine(self, enter: tuple[str, ...], command: tuple[str, ...], config: str) -> Examined:
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="check.", dir=self._runtime) as file:
            file.write(config)
            file.flush()
            argv = [*enter, *(file.name if word == CONFIG_WORD else word for word in command)]
            try:
                with self._forking:
                    process = subprocess.Popen(
                        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment()
                    )
            except FileNotFoundError as error:
                return Examined((argv[0],), file.name, _NOT_FOUND, str(error))
            except OSError as error:
                raise LaunchError(f"{' '.join(argv)}: {error}") from error
            with process:
                try:
                    _, said = process.communicate(timeout=_CALL_S)
                except subprocess.SubprocessError as error:
                    process.kill()
                    raise LaunchError(f"{' '.join(argv)}: {error}") from error
            return Examined(command, file.name, process.returncode, said)

    def own_pid(self, process: Process, enter: tuple[str, ...]) -> int:
        pid = process.pid
        with contextlib.suppress(OSError):
            while enter and (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0] == enter[0].encode():
                children = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
                if len(children) != 1:
                    break
                pid = int(children[0])
        return pid

    def pidfd(self, process: Process) -> int | None:
        try:
            found = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return None
        if start_time(process.pid) != process.started:
            os.close(found)
            return None
        return found

    # ---- locks

    def _path(self, key: str, suffix: str) -> Path:
        return self._runtime / f"{key}.{suffix}"

    def _note(self, key: str) -> tuple[int, str] | None:
        """Return what the current or last holder of the lock recorded: its id, its incarnation."""
        try:
            number, incarnation = self._path(key, "lock").read_text().split()
            return int(number), incarnation
        except (OSError, ValueError):
            return None

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[int]:
        """Take the lock of a key; a process spawned within keeps it."""
        lock = os.open(self._path(key, "lock"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LaunchError(f"{key}: its process is already running") from None
            yield lock
        finally:
            os.close(lock)

    def _is_held(self, key: str) -> bool:
        with self._forking:
            try:
                lock = os.open(self._path(key, "lock"), os.O_RDWR)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(lock)
        return False

    def _await_released(self, key: str, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._is_held(key):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def _environment() -> dict[str, str]:
    """Return a minimal environment, without the agent's tokens and the like."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return kept | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"}


def _write(path: Path, text: str) -> None:
    """Write a file atomically; it may contain secrets."""
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def _signal(leader: int, number: signal.Signals) -> None:
    """Signal a whole session, so that children do not outlive their process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def _ending(pid: int) -> str:
    """Return how a process ended, if it was this agent's child and has ended, and reap it."""
    try:
        waited, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return ""
    if waited == 0:
        return ""
    code = os.waitstatus_to_exitcode(status)
    return f" with exit status {code}" if code >= 0 else f" by {signal.Signals(-code).name}"


def _holders(path: Path) -> list[int]:
    """Return the processes that have a file open, whatever their session."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if any(link.readlink() == path for link in (entry / "fd").iterdir()):
                found.append(int(entry.name))
    return found
