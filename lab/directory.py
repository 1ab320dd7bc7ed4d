"""The directories of labs, by name, and which labs are running.

``$UNO_LAB_DIR/NAME``, by default /tmp/uno-lab-UID/NAME. A lab is running if the process in its lab.json is: the same
process id with the same start time.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from lab import quota
from lab.errors import LabNameError, LabNotRunningError, LabRunningError
from lab.state import LabState
from server.processes import is_running

ENVIRONMENT = "UNO_LAB_DIR"

SPEC_FILE = "spec.json"
CONTROL_SOCKET = "control.sock"
SERVER_TOML = "server.toml"
LOG_FILE = "supervisor.log"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")
_SOCKET_PATH_MAX = 107  # sun_path without its NUL
_LONGEST_TAIL = "/switches/hypervisor/ovsdb-server.ctl"


class LabDirectory:
    """The directory of the lab called ``name``, which may not exist.

    Raises:
        LabNameError: the name, or the directory of all labs, cannot be used; with the reason.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.match(name):
            raise LabNameError(f"lab name {name!r}: use up to 32 letters, digits, '.', '_' and '-'")
        self.name = name
        self.root = root()
        self.path = self.root / name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock while the lab is being started or removed.

        Raises:
            LabRunningError: another process holds it.
        """
        _make_root(self.root)
        path = self.root / f".{self.name}.lock"
        with contextlib.ExitStack() as held:
            while True:
                lock = held.enter_context(path.open("a"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise LabRunningError(f"lab {self.name} is being started or stopped by another process") from None
                with contextlib.suppress(FileNotFoundError):
                    if path.samefile(f"/proc/self/fd/{lock.fileno()}"):
                        break  # otherwise its last holder removed it after it was opened
            held.callback(path.unlink, missing_ok=True)
            yield

    def create(self) -> None:
        """Create the directory, empty, without what a dead lab left there.

        Raises:
            LabRunningError: the lab is running.
            LabNameError: its sockets' paths would be too long.
        """
        tail = len(_LONGEST_TAIL.encode())
        if len(os.fsencode(self.path)) + tail > _SOCKET_PATH_MAX:
            raise LabNameError(
                f"{self.path} is too long: Linux allows {_SOCKET_PATH_MAX} bytes for a socket's path, of which the lab "
                f"needs {tail}. Choose a shorter name, or a shorter directory with {ENVIRONMENT}"
            )
        running = self.state()
        if running is not None:
            raise LabRunningError(
                f"lab {self.name} is already running (process {running.pid}); end it with: uno-lab down {self.name}"
            )
        self.remove()
        self.path.mkdir(mode=0o700)

    def sweep(self) -> None:
        """Remove the leftovers of other, killed labs, but not of one that is just starting."""
        for entry in self.root.iterdir():
            if entry.name == self.name or not _NAME.match(entry.name) or not (entry / SPEC_FILE).exists():
                continue
            other = LabDirectory(entry.name)
            with contextlib.suppress(LabRunningError, OSError), other.locked():
                if other.state() is None:
                    other.remove()

    def remove(self) -> None:
        """Remove the directory if it exists, and the control groups of a lab that has ended."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            quota.remove(slot.group for slot in LabState.read(self.path).slots if slot.group)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)

    def state(self) -> LabState | None:
        """Return the lab's state, or None if it is not running."""
        try:
            state = LabState.read(self.path)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return state if is_running(state.pid, state.start_time) else None

    def require_state(self) -> LabState:
        """Return the lab's state.

        Raises:
            LabNotRunningError: it is not running.
        """
        state = self.state()
        if state is None:
            running = ", ".join(each.name for each in running_labs()) or "none"
            raise LabNotRunningError(f"lab {self.name!r} is not running in {self.root}; running: {running}")
        return state


def root() -> Path:
    """Return the directory of all labs of this user."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen).absolute() if chosen else Path(f"/tmp/uno-lab-{os.geteuid()}")


def running_labs() -> list[LabState]:
    """Return this user's running labs, by name."""
    try:
        names = sorted(entry.name for entry in root().iterdir() if _NAME.match(entry.name))
    except OSError:
        return []
    return [state for name in names if (state := LabDirectory(name).state()) is not None]


def _make_root(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LabNameError(
            f"{path} is not a directory of this user (it belongs to user {found.st_uid}): set {ENVIRONMENT}"
        )
    if path.resolve().is_relative_to("/run") or path.resolve().is_relative_to("/proc"):
        raise LabNameError(
            f"{path}: the lab mounts its own /run and /proc over it; choose another directory with {ENVIRONMENT}"
        )
