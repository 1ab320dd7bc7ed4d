"""CP-SAT in a separate process, if installed: importing highspy before OR-Tools breaks OR-Tools."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from placement.backends.base import Answer, Status, accept
from placement.backends.highs import trivial
from placement.errors import BackendError
from placement.formulate import Form, Program

START_SECONDS = 20.0
"""Time for the process to start and to write its answer, in addition to the solver's time."""


def installed() -> bool:
    """Tell whether OR-Tools can be imported."""
    return importlib.util.find_spec("ortools") is not None


class CpSat:
    """CP-SAT as a backend."""

    name = "cpsat"

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """See ``Backend.minimise``."""
        if not program.names:
            return trivial(program, goal, self.name)
        with Process() as process:
            return process.minimise(program, goal, seconds, start, gap)


class Process:
    """A process for one request; it starts at once, to be ready when the request comes. Leaving the context ends it."""

    def __init__(self) -> None:
        # Start it by its path, because importing this package would load highspy, and isolated, or Python would search
        # its directory.
        command = [sys.executable, "-I", str(Path(__file__).with_name("cpsat_worker.py"))]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None, gap: float
    ) -> Answer:
        """See ``Backend.minimise``.

        Raises:
            BackendError: the process failed, or did not answer in time.
        """
        form = Form() if goal == "feasible" else program.goal(goal)
        document = json.dumps(_document(program, form, seconds, start, gap))
        try:
            out, errors = self.process.communicate(document, timeout=seconds + START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BackendError(
                f"CP-SAT's process did not answer within {START_SECONDS:g} s after its limit of {seconds:g} s"
            ) from error
        if self.process.returncode != 0:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            raise BackendError(f"CP-SAT's process ended with status {self.process.returncode}: {last}")
        told = json.loads(out)
        modes = tuple(told["modes"]) if told["modes"] is not None else None
        if modes is not None:
            accept(program, modes, CpSat.name)
        return Answer(Status(told["status"]), CpSat.name, modes, told["bound"])


def _document(
    program: Program, goal: Form, seconds: float, start: tuple[int, ...] | None, gap: float
) -> dict[str, object]:
    return {
        "sites": program.sites,
        "arcs": program.arcs,
        "rows": [[*_form(row.form), row.limit - row.form.constant] for row in program.rows],
        "goal": [*_form(goal), goal.constant],
        "seconds": seconds,
        "start": start,
        "gap": gap,
    }


def _form(form: Form) -> list[object]:
    return [sorted(form.choice.items()), sorted(form.cross.items())]
