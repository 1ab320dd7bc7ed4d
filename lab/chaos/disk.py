"""The disk of the agent's store: an ext4 file system of its own, that can be full or stall.

It is in a file, on a loop device, which takes root. A full disk is full: a file takes all free blocks. A disk that
stalls, as one whose controller resets again and again, is emulated by freezing the file system (FIFREEZE, fsfreeze(8)):
whatever writes waits until it thaws. Reads go on.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.errors import StartError
from lab.programs import find_program, search_path

_BYTES = 256 << 20
"""Enough that an empty store does not warn of a narrow disk."""
_SPARE_S = 0.05
_CHUNK = 1 << 20
_END_S = 10.0

_STALLER = """
import fcntl, os, signal, sys, time
place, stall_s, spare_s, parent = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), os.getppid()
freeze, thaw = 0xC0045877, 0xC0045878
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
signal.signal(signal.SIGINT, signal.SIG_IGN)
disk = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
while not ending and os.getppid() == parent:
    fcntl.ioctl(disk, freeze, 0)
    try:
        os.write(sys.stdout.fileno(), b".")
        deadline = time.monotonic() + stall_s
        while not ending and os.getppid() == parent and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
    finally:
        fcntl.ioctl(disk, thaw, 0)
    time.sleep(spare_s)
"""
"""A process of its own: if this one is killed, the file system must thaw, or all that waits for it waits for good."""


def missing() -> str | None:
    """Return what this machine lacks for it; None: nothing."""
    if os.geteuid() != 0:
        return "root, to mount a file system"
    if not Path("/dev/loop-control").exists():
        return "loop devices"
    return None if shutil.which("mkfs.ext4", path=search_path()) else "mkfs.ext4 (Debian package e2fsprogs)"


class Disk:
    """The disk, mounted in the mount namespace of this process.

    Args:
        place: directory that it is mounted on; created.
        image: its file; created.

    Raises:
        StartError: it cannot be mounted; with the reason.
    """

    def __init__(self, place: Path, image: Path) -> None:
        self._place = place
        self._filler = place / "filler"
        self._staller: subprocess.Popen[bytes] | None = None
        place.mkdir(parents=True, exist_ok=True)
        image.touch(mode=0o600)
        os.truncate(image, _BYTES)
        # No blocks are reserved for root, which the agent may be.
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        _run("mount", "-o", "loop", str(image), str(place))

    def fill(self) -> None:
        """Take all free space, down to the last block."""
        with self._filler.open("wb", buffering=0) as filler:
            free = os.statvfs(self._place)
            with contextlib.suppress(OSError):
                os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize)
            filler.seek(0, os.SEEK_END)
            for size in (_CHUNK, free.f_frsize):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(b"\0" * size)

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)

    def stall(self, stall_s: float) -> None:
        """Let all writes wait for that long, again and again; return once they do.

        Raises:
            StartError: the file system cannot be frozen; standard error has the reason.
        """
        argv = [sys.executable, "-I", "-S", "-c", _STALLER, str(self._place), str(stall_s), str(_SPARE_S)]
        self._staller = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)
        assert self._staller.stdout is not None
        if not self._staller.stdout.read(1):
            raise StartError(f"cannot freeze the file system {self._place}")

    def flow(self) -> None:
        """Stop stalling."""
        if self._staller is not None:
            self._staller.send_signal(signal.SIGTERM)
            self._staller.communicate(timeout=_END_S)
            self._staller = None

    def close(self) -> None:
        """Unmount it."""
        self.flow()
        _run("umount", "--lazy", str(self._place))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def in_own_mounts() -> None:
    """Run this program again in a mount namespace of its own, so that the kernel unmounts the disk however it ends."""
    if os.geteuid() == 0 and _MARK not in os.environ:
        unshare = [find_program("unshare"), "--mount", "--propagation", "private", "--"]
        os.execve(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]], os.environ | {_MARK: "1"})


_MARK = "UNO_LAB_OWN_MOUNTS"


def _run(*command: str) -> None:
    environment = os.environ | {"PATH": search_path()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise StartError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
