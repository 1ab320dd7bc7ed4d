"""kill -9 of a random process at a random moment of a migration under traffic, and what came of it.

Usage: python -m tests.nfagent.killing SEED FIRST COUNT; prints a JSON object per kill. Which process, step and moment
follow from SEED and the kill's number, so that one that went wrong can be done again by its number.
"""

import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from lab.errors import LabError
from nfagent.model import Migration
from tests.nfagent.killed_world import World, await_true, kill
from unoctl.errors import UnoctlError

STEPS = ("requested", "prepare", "precopy", "freeze", "delta", "COMMIT", "flip", "drain", "done")
COMMITTED = STEPS.index("COMMIT")
VICTIMS = ("agent", "old", "new", "oneswitchd")
KILLS_PER_WORLD = 50
_LONGEST_S = {"requested": 0.02, "prepare": 0.3, "flip": 0.4, "drain": 0.02}  # about as long as the step takes
_SHORT_S = 0.01
_LAST_S = 0.02  # a process that dies so shortly before the end of a migration dies as any instance may
_ENDED_S = 60.0


@dataclass(frozen=True)
class Plan:
    """A kill.

    Attributes:
        step: of the migration's journal, in which or after which it happens.
        delay_s: after that step was written.
        mode: how the state moves.
    """

    number: int
    victim: str
    step: str
    delay_s: float
    mode: str

    @classmethod
    def of(cls, seed: int, number: int) -> "Plan":
        """The plan of this number. All of one world have the same mode."""
        world = number // KILLS_PER_WORLD
        mode = "copy" if world % 4 == 3 else "memfd"
        chance = random.Random(f"{seed}/{number}")
        step = chance.choice(STEPS)
        return cls(number, chance.choice(VICTIMS), step, chance.random() * _LONGEST_S.get(step, _SHORT_S), mode)


def run(seed: int, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Verdicts. A world ends with its last kill, or with one after which something was wrong."""
    world: World | None = None
    try:
        for number in range(first, first + count):
            plan = Plan.of(seed, number)
            if world is not None and (world.mode != plan.mode or number % KILLS_PER_WORLD == 0):
                world = _end(world)
            verdict = asdict(plan) | {"seed": seed}
            try:
                world = world or World(plan.mode)
                verdict |= one(world, plan)
            except (LabError, TimeoutError, httpx.HTTPError, UnoctlError) as error:
                verdict |= {"wrong": [f"it could not be carried out: {error!r}"]}
            yield verdict
            if verdict["wrong"] and world is not None:
                world = _end(world)
    finally:
        if world is not None:
            _end(world)


def _end(world: World) -> None:
    world.__exit__(None, None, None)


def one(world: World, plan: Plan) -> dict[str, Any]:
    """A migration during which a process is killed."""
    began = time.monotonic()
    source = world.location()
    target = "snic0" if source == "hypervisor" else "hypervisor"
    victims = {"old": world.process_at(source)}
    epoch = world.balancer.ask(target)
    killed_at, when = _kill(world, plan, epoch, target, victims)
    killed_number = world.stream.sent()
    wrong: list[str] = []
    if not await_true(lambda: world.migration(epoch).outcome is not None, _ENDED_S):
        wrong.append(f"the migration has not ended after {_ENDED_S:g} s")
    wrong += world.inconsistencies()
    packets = world.packets()
    migration = world.migration(epoch)
    if killed_at == "done" and when > (migration.ended or 0.0) - _LAST_S:
        killed_at = "ended"
    elif plan.victim == "new" and killed_at in STEPS[:COMMITTED] and _committed(migration) <= when:
        killed_at = "COMMIT"  # between looking and killing
    wrong += _untruths(world, plan, migration) + unfit(plan, killed_at, migration, packets)
    return {
        "source": source,
        "killed_at": killed_at,
        "back_at_number": killed_number,
        "outcome": migration.outcome,
        "reason": migration.reason,
        "rolled_back_at": migration.report.get("rolled_back_at"),
        "lost_state": migration.report.get("lost_state"),
        **packets,
        "seconds": round(time.monotonic() - began, 2),
        "wrong": wrong,
    }


def _kill(
    world: World, plan: Plan, epoch: int, target: str, victims: dict[str, int | None]
) -> tuple[str | None, float]:
    """Kill at the planned moment; the journal's step, None: there was nothing to kill any more; and when that was."""

    def reached() -> bool:
        migration = world.migration(epoch)
        return migration.outcome is not None or _index(migration.step) >= STEPS.index(plan.step)

    def begun() -> bool:
        victims["new"] = world.process_at(target)
        return victims["new"] is not None or world.migration(epoch).outcome is not None

    await_true(reached, _ENDED_S)
    if plan.victim == "new":
        await_true(begun, _ENDED_S)
    time.sleep(plan.delay_s)
    migration, now = world.migration(epoch), time.time()
    if plan.victim == "agent":
        world.restart_agent()
    elif plan.victim == "oneswitchd":
        world.restart_oneswitchd()
    elif migration.outcome is not None:
        return None, now  # the old one has been ended; the new one is not a migration's any more
    else:
        process = victims[plan.victim]
        if process is None:
            return None, now
        kill(process)
        now = time.time()
    return "ended" if migration.outcome is not None else migration.step, now


def _committed(migration: Migration) -> float:
    """When COMMIT began to be written; infinite: never."""
    return min((each["at"] for each in migration.report.get("steps", ()) if each["step"] == "COMMIT"), default=math.inf)


def _index(step: str) -> int:
    return STEPS.index(step) if step in STEPS else 0


def _untruths(world: World, plan: Plan, migration: Migration) -> list[str]:
    """Where what is told of the migration is not what is."""
    location = world.location()
    expected = migration.target if migration.outcome == "done" else migration.source
    wrong = []
    if location != expected:
        wrong.append(f"it is {migration.outcome} from {migration.source} to {migration.target}, and runs at {location}")
    report = migration.report
    needed = {"mode", "freeze_us", "relayed", "state_bytes", "steps", "lost_state", "rolled_back_at"}
    if missing := needed - set(report):
        wrong.append(f"the report lacks {', '.join(sorted(missing))}")
    if (migration.outcome == "rolled-back") != (report.get("rolled_back_at") is not None):
        wrong.append(f"outcome {migration.outcome}, rolled_back_at {report.get('rolled_back_at')}")
    if plan.victim != "agent" and "the agent ended" in (migration.reason or ""):
        wrong.append(f"the {plan.victim} was killed, and the reason given is: {migration.reason}")
    if migration.outcome not in ("done", "rolled-back"):
        wrong.append(f"outcome {migration.outcome}: {migration.reason}")
    return wrong + world.complaints()


def unfit(plan: Plan, killed_at: str | None, migration: Migration, packets: dict[str, Any]) -> list[str]:
    """What packets saw that they should not have seen."""
    wrong = [f"{packets[each]} packets {each}" for each in ("duplicated", "reordered") if packets[each]]
    if not packets["flows"]:
        wrong.append("no packet comes through any more")
    crashed = plan.victim == "new" and killed_at == "ended"
    committed = killed_at is not None and _index(killed_at) >= COMMITTED
    had_packets = killed_at is not None and (plan.victim == "old" or (plan.victim == "new" and (committed or crashed)))
    if packets["lost"] and not had_packets:
        wrong.append(f"{packets['lost']} packets lost")
    if packets["strayed"] and not crashed:
        alone = plan.victim == "old" and killed_at in ("requested", "prepare")  # nobody else had its state yet
        copied = plan.mode == "copy" and plan.victim == "new" and committed
        if not (alone or copied):
            wrong.append(f"{packets['strayed']} packets went to another backend")
        elif migration.report.get("lost_state") is None:
            wrong.append(f"{packets['strayed']} packets went to another backend, and the report says of no lost state")
    return wrong


def main() -> None:
    """The command."""
    seed, first, count = map(int, sys.argv[1:])
    for verdict in run(seed, first, count):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
