"""Namespaces: which ones this user may create, how the lab starts in them, and how it uses its network namespaces.

The supervisor is the first process of a PID namespace, so the kernel ends all processes of a lab with it. Network
namespaces are named (``ip netns``) in a private /run, so they vanish with it too.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.errors import NamespacesRefusedError, StartError
from lab.programs import find_program

NETNS_DIRECTORY = Path("/run/netns")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8

_USER = ("--user", "--map-root-user")
_OTHERS = ("--net", "--mount", "--pid", "--fork", "--kill-child")


def unshare_command() -> list[str]:
    """Return the ``unshare`` call, without the command, that gives this user namespaces.

    Root gets no user namespace unless it may not create the others without one (in a container).

    Raises:
        NamespacesRefusedError: the kernel refuses; with possible remedies.
    """
    choices: list[tuple[str, ...]] = [_OTHERS] if os.geteuid() == 0 else []
    choices.append((*_USER, *_OTHERS))
    said = ""
    for choice in choices:
        command = [find_program("unshare"), *choice]
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
        said = tried.stderr.strip()
    raise NamespacesRefusedError(f"{_why_refused()} ({said}). {_way_out()}")


def has_user_namespace(command: Sequence[str]) -> bool:
    """Tell whether that `unshare_command` creates a user namespace."""
    return _USER[0] in command


def _why_refused() -> str:
    if _sysctl("user/max_user_namespaces") == "0":
        return "User namespaces are off on this machine: sysctl user.max_user_namespaces is 0"
    if _sysctl("kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are off for ordinary users: sysctl kernel.unprivileged_userns_clone is 0"
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "User namespaces are off for ordinary users: sysctl kernel.apparmor_restrict_unprivileged_userns is 1"
    return "This user may not create namespaces here"


def _way_out() -> str:
    if os.geteuid() == 0:
        return "This root lacks CAP_SYS_ADMIN: give the container that capability, or use the substrate dummy."
    return "The same command works with sudo; the substrate dummy needs neither."


def _sysctl(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


# ---- inside


def private_run() -> None:
    """Mount an empty file system over /run, for ``ip netns``.

    Raises:
        OSError: this process is not in its own mount namespace.
    """
    _mount("tmpfs", "/run", "tmpfs", 0)
    NETNS_DIRECTORY.mkdir(parents=True)


def private_proc() -> bool:
    """Mount our PID namespace's /proc over /proc; return False if the kernel refuses, as in some containers."""
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID_NODEV_NOEXEC)
    except OSError:
        return False
    return True


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    if _LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def add(names: Sequence[str]) -> None:
    """Create network namespaces."""
    ip_batch(f"netns add {name}" for name in names)


@contextlib.contextmanager
def entered(name: str | None = None, fd: int | None = None) -> Iterator[None]:
    """Enter a network namespace (by name or open file) with this thread, and what it starts, for a while."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    target = os.open(NETNS_DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC) if name is not None else fd
    try:
        _setns(target if target is not None else own)
        try:
            yield
        finally:
            _setns(own)
    finally:
        os.close(own)
        if name is not None and target is not None:
            os.close(target)


def _setns(fd: int) -> None:
    if _LIBC.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "setns")


def ip_batch(lines: Iterator[str] | Sequence[str]) -> None:
    """Run ``ip`` once with those lines, in this thread's network namespace.

    Raises:
        StartError: a line failed; with ``ip``'s message.
    """
    text = "\n".join(lines)
    done = subprocess.run([find_program("ip"), "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        failed = done.stderr.strip().replace("\n", "; ")
        raise StartError(f"ip could not set up the lab's network: {failed}. It was told: {text}")


# ---- from outside


def enter_command(pid: int, netns: str, *, user_namespace: bool) -> list[str]:
    """Return the ``nsenter`` call, without the command, into a lab's namespaces and one of its network namespaces.

    Args:
        pid: the lab's supervisor, as seen from outside.
        netns: path as in lab.json.
        user_namespace: as in lab.json.
    """
    command = [find_program("nsenter"), f"--target={pid}", f"--net={netns}", "--mount", "--pid"]
    if user_namespace:
        command += ["--user", "--preserve-credentials"]
    return [*command, "--"]
