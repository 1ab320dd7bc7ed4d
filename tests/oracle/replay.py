"""Replay a script, and make it shorter: ``python -m tests.oracle.replay FILE [--shrink] [--switches K]``."""

import argparse
import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.programs import patched_ovs
from tests.oracle.compare import Comparison, DifferenceError
from tests.oracle.conftest import binary
from tests.oracle.steps import BreakLink, Bulk, Inject, RestartOneswitchd, RestartSwitch, Script, Send, Step, Timed


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--shrink", action="store_true", help="remove what the difference does not need; rewrites the file"
    )
    parser.add_argument("--switches", type=int, help="number of switches; default: from the script")
    parser.add_argument("--executor", help="the server's default: home or a switch; default: from the script")
    parser.add_argument(
        "--binary", type=Path, default=binary(), help="path of oneswitchd; default: ONESWITCHD, or the installed one"
    )
    arguments = parser.parse_args()
    script = Script.read(arguments.file)
    if arguments.switches:
        script.switches = arguments.switches
    if arguments.executor:
        script.executor = arguments.executor
    ovs = patched_ovs() if "pcie" in script.links else None
    if "pcie" in script.links and ovs is None:
        parser.error(f"{arguments.file} needs an Open vSwitch with ports of type pcie: `make ovs` builds one")
    options = {"stateful": script.stateful, "meters": script.meters, "links": script.links, "ovs": ovs}
    with Comparison(script.switches, arguments.binary, executor=script.executor, **options) as comparison:
        difference = outcome(comparison, script)
        if difference is not None and arguments.shrink:
            script = shrunk(comparison, script)
            difference = outcome(comparison, script)
            script.note = str(difference)
            script.write(arguments.file)
    for number, step in enumerate(script.steps, 1):
        print(f"{number}. {described(step)}")
    print("No difference." if difference is None else f"\nDifference at {difference}")
    return 0 if difference is None else 1


def outcome(comparison: Comparison, script: Script) -> DifferenceError | None:
    """Play ``script``; return the difference found."""
    try:
        comparison.run(script)
        comparison.finish()
    except DifferenceError as difference:
        return difference
    return None


def shrunk(comparison: Comparison, script: Script) -> Script:
    """Return the shortest script with a difference, found by removing steps, messages and frames."""
    fails = lambda steps: outcome(comparison, dataclasses.replace(script, steps=steps)) is not None  # noqa: E731
    slow = (Timed, Bulk, RestartSwitch, RestartOneswitchd, BreakLink)
    quick: list[Step] = [step for step in script.steps if not isinstance(step, slow)]
    steps = _minimal(quick if fails(quick) else script.steps, fails)
    changed = True
    while changed:
        changed = False
        for index in range(len(steps)):
            for simpler in _simpler(steps[index]):
                candidate = [*steps[:index], simpler, *steps[index + 1 :]]
                if fails(candidate):
                    steps, changed = _minimal(candidate, fails), True
                    break
            if changed:
                break
    return dataclasses.replace(script, steps=steps, note="")


def _minimal(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Delta debugging by halves of halves."""
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if candidate != steps and fails(candidate):
                steps = candidate
            else:
                at += size
        if size == 1:
            return steps
        size //= 2


def _simpler(step: Step) -> Iterator[Step]:
    match step:
        case Send(messages) if len(messages) > 1:
            for index in range(len(messages)):
                yield dataclasses.replace(step, messages=messages[:index] + messages[index + 1 :])
        case Inject(_, frames) if len(frames) > 1:
            yield dataclasses.replace(step, frames=frames[:1])
        case _:
            pass


def described(step: Step) -> str:
    """Describe a step, with messages as ovs-ofctl prints them."""
    if not isinstance(step, Send):
        return repr(step)
    printed = [_printed(message) for message in step.messages]
    return "\n".join(
        [f"Send {step.about}", *(f"     {line}" for each in printed for line in each.splitlines() if line)]
    )


def _printed(message: str) -> str:
    result = subprocess.run(["ovs-ofctl", "ofp-print", message], capture_output=True, text=True, check=False)
    return result.stdout or message


if __name__ == "__main__":
    sys.exit(main())
