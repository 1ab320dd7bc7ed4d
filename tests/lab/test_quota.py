"""Slots whose functions get a part of a core: control groups of both versions, and a lab with them."""

from pathlib import Path

import pytest

from lab import quota
from lab.server import Lab
from lab.spec import LabSpec

SLOW, FAST = "snic0.nf1", "hypervisor.nf1"
BURN = "import time\nwhile time.process_time() < 0.1: pass"


class Machine:
    """A machine's /proc and control groups, as files."""

    def __init__(self, directory: Path) -> None:
        self.proc, self.second, self.first = (directory / name for name in ("proc", "unified", "cpu"))
        for each in (self.proc, self.second, self.first / "box"):
            each.mkdir(parents=True)
        (self.proc / "cgroup").write_text("2:cpu,cpuacct:/box\n0::/\n")

    def mount(self, *, controllers: str | None, first: bool) -> None:
        """Mount version 2 with these controllers, version 1 with cpu."""
        mounts = [] if controllers is None else [f"cgroup2 {self.second} cgroup2 rw 0 0"]
        mounts += [f"cgroup {self.first} cgroup rw,cpu,cpuacct 0 0"] if first else []
        (self.proc / "mounts").write_text("\n".join([f"tmpfs {self.first} tmpfs rw 0 0", *mounts]))
        (self.second / "cgroup.controllers").write_text(controllers or "")
        (self.second / "cgroup.subtree_control").write_text("memory")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_version_2_is_preferred_and_its_children_get_the_controller(machine: Machine) -> None:
    machine.mount(controllers="cpuset cpu", first=True)
    quotas = quota.find(machine.proc)
    assert isinstance(quotas, quota.Quotas)
    assert (machine.second / "cgroup.subtree_control").read_text() == "+cpu"
    group = quotas.limit("slot", 0.25)
    assert (group.parent, (group / "cpu.max").read_text()) == (machine.second, "2500 10000")


def test_version_1_is_used_where_it_has_the_controller(machine: Machine) -> None:
    machine.mount(controllers="memory", first=True)
    quotas = quota.find(machine.proc)
    assert isinstance(quotas, quota.Quotas)
    group = quotas.limit("slot", 0.02)
    assert group.parent == machine.first / "box"
    assert [(group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")] == ["1000", "50000"]


def test_without_either_the_reason_is_told(machine: Machine) -> None:
    machine.mount(controllers="memory", first=False)
    assert quota.find(machine.proc) == f"{machine.second} lacks the controller cpu"
    machine.mount(controllers=None, first=False)
    assert quota.find(machine.proc) == "no control groups are mounted"


@pytest.mark.namespaces
def test_only_functions_in_slow_slots_are_stopped_when_they_have_used_their_part(lab_dir: Path) -> None:
    assert lab_dir
    with Lab(LabSpec.demo().with_slots(1, snic_speed=0.1)).start() as lab:
        groups = {slot.name: slot.group for slot in lab.state.slots}
        slow, fast = groups[SLOW], groups[FAST]
        assert fast is None
        if slow is None:  # without root
            assert [note for note in lab.state.notes if f"functions in {SLOW} are not slowed" in note]
            return
        own = lab.exec(SLOW, ["cat", "/proc/self/cgroup"]).stdout
        assert f"/{Path(slow).name}\n" in own
        before = quota.throttled(slow)
        lab.exec(SLOW, ["python3", "-c", BURN])
        # 100 ms of CPU time are ten quotas of 1 ms in each 10 ms; the last may be used in part.
        assert quota.throttled(slow) - before >= 9
    assert not Path(slow).exists()
