"""CPU quotas: a slot's functions get a part of a core, which is how a slow core of a smart NIC is emulated.

The kernel stops a group of processes for the rest of a period in which it has used its quota. So a function that would
use less than that is not slowed, and one that would use more makes progress in bursts.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/self")
PROCESSES = "cgroup.procs"

_PERIOD_US = 10_000
_QUOTA_MIN_US = 1_000  # of the kernel
_PERIOD_MAX_US = 1_000_000


@dataclass(frozen=True)
class Quotas:
    """The directory for groups, and how a quota is written there.

    Attributes:
        directory: of control groups that this user may create.
        write: writes quota and period, in us, to a group.
    """

    directory: Path
    write: Callable[[Path, int, int], None]

    def limit(self, name: str, speed: float) -> Path:
        """Create a group, or change its quota.

        Args:
            name: of the group.
            speed: part of a core.

        Returns:
            The group's directory.

        Raises:
            OSError: the kernel refuses.
        """
        group = self.directory / name
        group.mkdir(exist_ok=True)
        self.write(group, *quota(speed))
        return group


def quota(speed: float) -> tuple[int, int]:
    """Return quota and period, in us, of a part of a core.

    Example:
        >>> quota(0.25), quota(0.02)
        ((2500, 10000), (1000, 50000))
    """
    period = min(_PERIOD_MAX_US, max(_PERIOD_US, round(_QUOTA_MIN_US / speed)))
    return max(_QUOTA_MIN_US, round(speed * period)), period


def find(proc: Path = PROC) -> Quotas | str:
    """Find where this user may create groups with a quota, in control groups of version 2, else of version 1.

    Returns:
        That, or why there are none.
    """
    reasons = []
    for kind, place in _hierarchies(proc):
        made = _second(place) if kind == "cgroup2" else Quotas(place, _write_first)
        if isinstance(made, Quotas):
            if os.access(place, os.W_OK):
                return made
            made = f"this user may not write to {place}"
        reasons.append(made)
    return "; ".join(reasons) or "no control groups are mounted"


def remove(groups: Iterable[str]) -> None:
    """Remove groups whose processes have ended."""
    for group in groups:
        with contextlib.suppress(OSError):
            Path(group).rmdir()


def enter(group: str) -> list[str]:
    """Return the prefix that runs a command in a group."""
    return ["/bin/sh", "-c", f'echo 0 >"$0/{PROCESSES}" && exec "$@"', group]


def throttled(group: str) -> int:
    """Return in how many periods a group has used its quota."""
    return _counts(Path(group))["nr_throttled"]


def _counts(group: Path) -> Mapping[str, int]:
    lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return {name: int(value) for name, value in lines}


def _hierarchies(proc: Path) -> list[tuple[str, Path]]:
    """Return kind and place of mounted hierarchies that may limit CPU time, version 2 first."""
    own = _own_groups(proc)
    found = []
    for line in (proc / "mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.append((kind, Path(place)))
        elif kind == "cgroup" and "cpu" in options.split(","):
            below = Path(place) / own.get("cpu", "/").lstrip("/")
            found.append((kind, below if below.is_dir() else Path(place)))
    return sorted(found, key=lambda each: each[0] != "cgroup2")


def _own_groups(proc: Path) -> dict[str, str]:
    """Return this process's group in each hierarchy of version 1, by controller."""
    lines = (line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines())
    return {controller: path for _, names, path in lines for controller in names.split(",")}


def _second(place: Path) -> Quotas | str:
    """Have the children of version 2's root get the controller, unless version 1 has it."""
    if "cpu" not in (place / "cgroup.controllers").read_text().split():
        return f"{place} lacks the controller cpu"
    control = place / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        try:
            control.write_text("+cpu")
        except OSError as error:
            return f"{place} does not give its children the controller cpu ({error.strerror})"
    return Quotas(place, _write_second)


def _write_first(group: Path, quota_us: int, period_us: int) -> None:
    # The kernel checks each write against the other value: without a quota any period is allowed.
    for name, value in (("quota", -1), ("period", period_us), ("quota", quota_us)):
        (group / f"cpu.cfs_{name}_us").write_text(str(value))


def _write_second(group: Path, quota_us: int, period_us: int) -> None:
    (group / "cpu.max").write_text(f"{quota_us} {period_us}")
