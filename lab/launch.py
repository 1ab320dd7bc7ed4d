"""Start a lab's supervisor in its namespaces and wait until the lab is ready."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.directory import LOG_FILE, SPEC_FILE, LabDirectory
from lab.errors import StartError
from lab.namespaces import has_user_namespace, unshare_command
from lab.programs import environment, find_program
from lab.spec import LabSpec


@dataclass
class Launched:
    """A supervisor that was started.

    Attributes:
        process: its parent process; None once collected.
        owner: a pipe whose closing tells it that its owner has ended. A detached supervisor minds only until it is
            ready.
    """

    process: subprocess.Popen[bytes] | None
    owner: int | None

    def disown(self) -> None:
        """Tell it that the owner is leaving."""
        if self.owner is not None:
            os.close(self.owner)
            self.owner = None

    def release(self) -> None:
        """Tell it that the owner is leaving, and collect the process."""
        self.disown()
        if self.process is not None:
            self.process.wait()
            self.process = None


def launch(spec: LabSpec, directory: LabDirectory, progress: Callable[[str], None], *, detach: bool) -> Launched:
    """Start the lab in ``directory`` and return when it is ready.

    Args:
        spec: the lab.
        directory: created by this function; the caller holds its lock.
        progress: shows the progress.
        detach: let the lab outlive this process.

    Raises:
        NamespacesRefusedError, StartError: it did not start; nothing remains of it.
    """
    spec.check()
    command = unshare_command() if spec.substrate == "netns" else []
    directory.sweep()
    directory.create()
    (directory.path / SPEC_FILE).write_text(json.dumps(spec.to_json()))
    try:
        launched, reports = _spawn(command, directory.path, detach=detach)
        with os.fdopen(reports) as lines:
            try:
                _await_ready(lines, directory.path, progress)
            except BaseException:
                launched.disown()
                for _ in lines:  # their end is the supervisor's end
                    pass
                launched.release()
                raise
    except BaseException:
        directory.remove()
        raise
    if detach:
        launched.release()
    return launched


def _spawn(unshare: list[str], directory: Path, *, detach: bool) -> tuple[Launched, int]:
    """Start the supervisor; return it and the reading end of its reports."""
    reports, report_fd = os.pipe()
    owner_fd, owner = os.pipe()
    host_net = None
    supervisor = [sys.executable, "-m", "lab.supervisor", str(directory)]
    supervisor += [f"--report-fd={report_fd}", f"--owner-fd={owner_fd}", *(["--detach"] if detach else [])]
    if has_user_namespace(unshare):
        supervisor.append("--user-namespace")
    elif unshare:
        host_net = os.open("/proc/self/ns/net", os.O_RDONLY)
        supervisor.append(f"--host-net-fd={host_net}")
    command = [*unshare, *supervisor]
    if detach:
        command = [find_program("setsid"), "--fork", *command]
    passed = [fd for fd in (report_fd, owner_fd, host_net) if fd is not None]
    try:
        with (directory / LOG_FILE).open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
            )
    finally:
        for fd in passed:
            os.close(fd)
    return Launched(process, owner), reports


def _await_ready(lines: Iterator[str], directory: Path, progress: Callable[[str], None]) -> None:
    for line in lines:
        message = json.loads(line)
        if "failed" in message:
            raise StartError(message["failed"])
        if "ready" in message:
            return
        progress(message["progress"])
    log = ""
    with contextlib.suppress(OSError):
        log = (directory / LOG_FILE).read_text(errors="replace").strip()
    raise StartError(f"the lab's supervisor ended before the lab was up; it said: {log or 'nothing'}")
