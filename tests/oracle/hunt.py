"""Let the random oracle find seeded faults: ``python -m tests.oracle.hunt [--names NAME...]``.

Writes what killed them, made short, to ``tests/oracle/mutants/NAME.json``.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.compare import Comparison
from tests.oracle.explore import explore
from tests.oracle.mutants import NAMES, Builder, builder, keeps_state, script_of
from tests.oracle.replay import outcome, shrunk
from tests.oracle.steps import Script

_TIMES = 3


@dataclass(frozen=True)
class Kill:
    """The proof against a mutant."""

    steps: int
    seconds: float
    script: Script


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="+", default=sorted(NAMES))
    parser.add_argument("--switches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20000, help="maximum per mutant")
    parser.add_argument("--start", type=int, default=1)
    arguments = parser.parse_args()
    with builder() as built:
        for stateful in (False, True):
            names = [name for name in arguments.names if keeps_state(name) == stateful]
            if not names:
                continue
            with Comparison(arguments.switches, sound := built.build(), stateful=stateful) as comparison:
                for name in names:
                    print(f"{name}: {_kill(comparison, built, name, sound, arguments)}", flush=True)


def _kill(comparison: Comparison, built: Builder, name: str, sound: Path, arguments: argparse.Namespace) -> str:
    """Hunt for a mutant and write the script that kills it; return the outcome."""
    mutant = built.build(name)
    comparison.mutant = mutant
    found = hunt(comparison, arguments.steps, arguments.start)
    if found is None:
        return f"survived {comparison.steps} steps"
    comparison.mutant = sound
    real = outcome(comparison, found.script)
    if real is not None:
        return f"not its fault: {real}"
    comparison.mutant = mutant
    short = shrunk(comparison, found.script)
    again = [outcome(comparison, short) for _ in range(_TIMES)]
    short.note = f"{found.steps} steps, {found.seconds:.1f} s. {again[0]}"
    short.write(script_of(name))
    sure = f"{sum(each is not None for each in again)} of {_TIMES} times"
    return f"{found.steps} steps, {found.seconds:.1f} s; {len(short.steps)} steps kill it, {sure}"


def hunt(comparison: Comparison, steps: int, start: int) -> Kill | None:
    """Look for a difference that the mutant makes; return None if it survives the steps."""
    begin = time.monotonic()
    if explore(comparison, steps, start) is None:
        return None
    return Kill(comparison.steps, time.monotonic() - begin, comparison.script)


if __name__ == "__main__":
    main()
