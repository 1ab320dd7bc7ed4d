"""The agent's actions in some runs, word by word, in one file each.

After an intended change, ``python -m tests.nfagent.faults.traces`` rewrites them;
`git diff` then shows the effect.
"""

import itertools
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from nfagent.store import migrations
from tests.nfagent.faults.points import Fault
from tests.nfagent.faults.run import Lab, Result, lab

FILES = Path(__file__).with_name("traces")

RUNS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "handed-over": ("memfd", ()),
    "copied": ("copy", ()),
    "copied-to-another-machine": ("remote", ()),
    "copied-home": ("remote-home", ()),
    "new-one-refuses": ("turn-back", ()),
    "old-one-refuses": ("memfd", (("ask hypervisor prepare", "refuse"),)),
    "new-one-cannot-be-started": ("memfd", (("start snic0", "refuse"),)),
    "new-one-dies-early": ("memfd", (("ask hypervisor give", "kill-new"),)),
    "old-one-dies-early": ("memfd", (("ask snic0 hold", "kill-old"),)),
    "old-one-dies-when-it-has-given": ("copy", (("ask hypervisor give", "dies"),)),
    "old-one-dies-offered": ("copy", (("ask hypervisor give", "hang-new"), ("ask hypervisor thaw", "kill-old"))),
    "old-one-and-its-state-die": ("memfd", (("ask snic0 hold", "kill-old"), ("ask snic0 hold", "kill-keeper"))),
    "new-one-hangs": ("memfd", (("ask snic0 hold", "hang-new"),)),
    "old-one-hangs": ("memfd", (("ask hypervisor give", "hang-old"),)),
    "old-one-naps": ("memfd", (("ask hypervisor prepare", "nap-old"),)),
    "new-one-dies-committed": ("memfd", (("ask snic0 handover", "kill-new"),)),
    "new-one-cannot-be-replaced": (
        "memfd",
        (("ask snic0 handover", "kill-new"), ("start snic0", "refuse"), *(("start snic0#1", "refuse"),) * 2),
    ),
    "nothing-can-be-started": (
        "memfd",
        (
            *(("ask snic0 handover", "kill-new"), ("start snic0", "refuse"), *(("start snic0#1", "refuse"),) * 2),
            *(("start hypervisor", "refuse"), *(("start hypervisor#1", "refuse"),) * 2),
            *(("start snic0", "refuse"), *(("start snic0#1", "refuse"),) * 2),
        ),
    ),
    "only-old-one-is-left": (
        "memfd",
        (("ask snic0 commit", "kill-keeper"), ("ask snic0 commit", "kill-new"), ("ask snic0 commit", "crash")),
    ),
    "copy-dies-untold": ("copy", (("ask hypervisor give", "hang-new"),)),
    "copy-dies-at-work": ("copy", (("ask snic0 handover", "kill-new"),)),
    "old-one-dies-committed": ("memfd", (("ask hypervisor drain", "kill-old"),)),
    "old-one-hangs-committed": ("memfd", (("ask hypervisor drain", "hang-old"),)),
    "both-die-committed": ("memfd", (("ask hypervisor drain", "kill-old"), ("ask snic0 handover", "kill-new"))),
    "agent-dies-early": ("memfd", (("ask hypervisor give", "crash"),)),
    "agent-dies-after-the-hand-over": ("memfd", (("write migration.step#2", "crash"),)),
    "agent-misses-the-answer": ("copy", (("ask hypervisor give", "lose"),)),
    "agent-dies-committed": ("memfd", (("ask hypervisor drain", "crash"),)),
    "deleted-before-the-start": ("memfd", (("ask hypervisor counters", "delete"),)),
    "deleted-while-copied": ("copy", (("ask hypervisor precopy", "delete"),)),
    "switch-is-away-early": ("memfd", (("move 1000 snic0 prepared", "away-nic"),)),
    "switch-is-stalled": ("memfd", (("ask hypervisor give", "away-nic"),)),
    "switch-is-away-late": ("memfd", (("ask hypervisor drain", "away-nic"),)),
    "switch-is-lost-late": ("memfd", (("ask hypervisor drain", "lost-nic"),)),
    "hypervisor-is-away": ("memfd", (("continue 1000 flipped", "away-hub"),)),
    "oneswitchd-is-away": ("memfd", (("continue 1000 flipped", "away-oneswitchd"),)),
    "oneswitchd-forgets": ("memfd", (("continue 1000 done", "forget"),)),
    "marker-is-lost": ("memfd", (("ask hypervisor relayed", "refuse"),)),
    "machine-is-lost": ("remote-home", (("ask hypervisor hold", "lost-nic"),)),
    "machine-is-lost-committed": ("remote", (("ask snic0 handover", "lost-nic"),)),
    "end-cannot-be-written": ("memfd", (("write migration.ended", "refuse"),)),
}
"""Scenario and faults by name; a fault's point is the first of that name from the one before on, or a later one (#)."""


def trace(laboratory: Lab, name: str) -> str:
    """Return a run as text."""
    scenario, wanted = RUNS[name]
    faults: list[Fault] = []
    with pytest.MonkeyPatch.context() as patch:
        result = _run(laboratory, patch, scenario, faults)
        for at, kind in wanted:
            what, _, later = at.partition("#")
            begin = faults[-1].index if faults else 0
            found = [each.index for each in result.points[begin:] if each.what == what]
            assert len(found) > int(later or 0), f"{name}: {len(found)} times {what}"
            index = found[int(later or 0)]
            faults.append(Fault(index, kind))
            result = _run(laboratory, patch, scenario, faults)
    return "\n".join([*result.notes, *_rows(laboratory), *result.violations, ""])


def _run(laboratory: Lab, patch: pytest.MonkeyPatch, scenario: str, faults: list[Fault]) -> Result:
    numbers = itertools.count(1)
    patch.setattr(random, "getrandbits", lambda bits: 1000 * next(numbers) + bits)  # of markers
    return laboratory.run(scenario, *faults)


def _rows(laboratory: Lab) -> Iterator[str]:
    """Return all migrations as they ended."""
    for each in migrations.page(laboratory._store.read, None, None, 100, None):
        row = asdict(each)
        report = row.pop("report")
        for name in ("requested", "started", "ended"):
            row[name] = row[name] and round(row[name] - 1e9, 3)
        for step in report.get("steps", ()):
            step["at"] = round(step["at"] - 1e9, 3)
        instance = row.pop("instance")
        if report.get("lost_state"):
            report["lost_state"].pop("instances")
        yield f"migration {row}".replace(instance, "ID")
        yield from (
            f"  {name}: {value}".replace(instance, "ID")
            for name, value in report.items()
            if name not in ("steps", "step_at") and value is not None
        )
        yield from (f"  {step}" for step in report.get("steps", ()))


def main() -> None:
    FILES.mkdir(exist_ok=True)
    for old in FILES.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as directory, lab(Path(directory)) as laboratory:
        for name in RUNS:
            (FILES / f"{name}.txt").write_text(trace(laboratory, name))


if __name__ == "__main__":
    main()
