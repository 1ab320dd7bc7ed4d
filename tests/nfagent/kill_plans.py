"""Random faults from a seed: the victim, the moment and the duration."""

import random
from dataclasses import dataclass
from typing import Literal

from nfagent.model import Migration

STEPS = ("requested", "prepare", "precopy", "freeze", "COMMIT", "flip", "drain", "done")
COMMITTED = STEPS.index("COMMIT")
PROCESSES = ("agent", "old", "new", "oneswitchd")
DAEMONS = tuple(f"{side} {daemon}" for side in ("source", "target") for daemon in ("ovs-vswitchd", "ovsdb-server"))
VICTIMS = (*PROCESSES, *DAEMONS)
FAULTS_PER_WORLD = 50
_LONGEST_S = {"requested": 0.02, "prepare": 0.3, "flip": 0.03, "drain": 0.02}  # about the duration of a step
_SHORT_S = 0.01
_STOPS_S = (0.1, 5.0, None)
_BACK_S = (0.1, 5.0)
_SWITCH_BACK_S = 1.0

How = Literal["kill", "stop"]


@dataclass(frozen=True)
class Plan:
    """A fault.

    Attributes:
        victim: a process, or the daemon of a switch at the migration's source or target.
        how: SIGKILL or SIGSTOP.
        for_s: until it is restarted or resumed; None: until the migration has ended.
        step: of the migration's journal, during or after which the fault happens.
        delay_s: delay after the step was written.
        mode: how the state moves.
    """

    number: int
    victim: str
    how: How
    for_s: float | None
    step: str
    delay_s: float
    mode: str

    @classmethod
    def of(cls, seed: int, number: int) -> "Plan":
        """Return the plan of this number. All plans of one world have the same mode."""
        world = number // FAULTS_PER_WORLD
        mode = "copy" if world % 4 == 3 else "memfd"
        chance = random.Random(f"{seed}/{number}")
        step, victim = chance.choice(STEPS), chance.choice(VICTIMS)
        how: How = chance.choice(("kill", "stop"))
        delay_s = chance.random() * _LONGEST_S.get(step, _SHORT_S)
        if how == "stop":
            for_s = chance.choice(_STOPS_S)
        else:
            low, high = _BACK_S
            for_s = None if chance.random() < 0.25 else low * (high / low) ** chance.random()
        if victim in ("old", "new") and how == "kill":
            for_s = None  # nfagent restarts it
        if victim == "agent" and for_s is None:
            for_s = _BACK_S[1]  # only an operator restarts it
        return cls(number, victim, how, for_s, step, delay_s, mode)

    @classmethod
    def of_switches(cls) -> "list[Plan]":
        """Return a plan for each step and side: its ovs-vswitchd is killed and comes back after a second."""
        modes = [("copy" if step == "precopy" else "memfd", step) for step in STEPS]
        sides = [(mode, step, side) for mode, step in modes for side in ("source", "target")]
        return [
            cls(number, f"{side} ovs-vswitchd", "kill", _SWITCH_BACK_S, step, 0.0, mode)
            for number, (mode, step, side) in enumerate(sides, 1)
        ]

    @property
    def switch_and_daemon(self) -> tuple[str, str] | None:
        """Return ``source`` or ``target``, and the daemon of the switch there."""
        side, _, daemon = self.victim.partition(" ")
        return (side, daemon) if daemon else None


def index(step: str) -> int:
    """Return the position of a step."""
    return STEPS.index(step) if step in STEPS else 0


def began(migration: Migration, step: str) -> float | None:
    """Return when an effect began according to the report."""
    return min((each["at"] for each in migration.report.get("steps", ()) if each["step"] == step), default=None)
