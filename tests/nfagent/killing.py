"""Faults at random moments of migrations under traffic, and their effects.

Usage: python -m tests.nfagent.killing SEED FIRST COUNT; prints a JSON object per fault. Victim, step, moment and
duration follow from SEED and the fault's number, which repeats a fault.
"""

import json
import math
import operator
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import httpx

from lab.errors import LabError
from nfagent.model import Migration
from server.errors import ServerError
from tests.nfagent.kill_plans import COMMITTED, FAULTS_PER_WORLD, STEPS, Plan, began, index
from tests.nfagent.killed_world import Fault, Seen, World, await_true

_REACHED_S = 60.0
_ENDED_S = 15.0  # after the last fault
_LAST_S = 0.02  # a process that dies this shortly before the end does not count as part of the migration
_NEAR_S = 0.1  # outages that differ by at most this, or a tenth, are equal: the machine runs other processes
_PAUSES = 3  # stalls of the machine in one migration
_GAPS = 10  # the longest pauses are reported
_LOG_LINES = 60
_FAULTLESS = "No faults known"


def run(seed: int, first: int, count: int, *, timed: bool = True) -> Iterator[dict[str, Any]]:
    """Yield verdicts on plans of a seed.

    Args:
        seed: of the plans.
        first: number of the first fault.
        count: of faults.
        timed: as `carry_out`.
    """
    plans = (Plan.of(seed, number) for number in range(first, first + count))
    yield from ({"seed": seed} | verdict for verdict in carry_out(plans, timed=timed))


def carry_out(plans: Iterable[Plan], *, timed: bool = True) -> Iterator[dict[str, Any]]:
    """Yield verdicts. A world ends with its last fault, or with one that had wrong effects.

    Args:
        plans: of the faults.
        timed: whether reported outages must match the packets, which needs an otherwise idle machine.
    """
    world: World | None = None
    try:
        for plan in plans:
            if world is not None and (world.mode != plan.mode or plan.number % FAULTS_PER_WORLD == 0):
                world = _end(world)
            verdict: dict[str, Any] = asdict(plan)
            try:
                world = world or World(plan.mode)
                verdict |= one(world, plan)
                if timed:
                    verdict["wrong"] = [*verdict["wrong"], *verdict["mistimed"]]
            except (LabError, TimeoutError, httpx.HTTPError, ServerError) as error:
                verdict |= {"wrong": [f"it could not be carried out: {error!r}"]}
            if verdict["wrong"] and world is not None:
                verdict["log"] = world.agent.log.read_text().splitlines()[-_LOG_LINES:]
            yield verdict
            if verdict["wrong"] and world is not None:
                world = _end(world)
    finally:
        if world is not None:
            _end(world)


def _end(world: World) -> None:
    world.__exit__(None, None, None)


def one(world: World, plan: Plan) -> dict[str, Any]:
    """Run a migration with a fault."""
    start = time.monotonic()
    source = world.location()
    target = "snic0" if source == "hypervisor" else "hypervisor"
    fault = Fault(world, plan, source, target)
    epoch = world.balancer.ask(target)
    fault_at, when = _happen(world, plan, epoch, fault)
    wrong: list[str] = []
    ended = await_true(lambda: world.migration(epoch).outcome is not None, _ENDED_S)
    if not ended:
        wrong += _told(world, plan, epoch)
    fault.undo()
    if not ended and not await_true(lambda: world.migration(epoch).outcome is not None, _ENDED_S):
        wrong.append(f"the migration has not ended {_ENDED_S:g} s after the last fault")
    # A later one may evacuate the instance from a dead switch.
    if not await_true(lambda: world.newest().epoch == epoch or world.newest().outcome is not None, _ENDED_S):
        wrong.append(f"another migration has not ended {_ENDED_S:g} s later")
    wrong += world.inconsistencies()
    packets = world.packets()
    migration = world.migration(epoch)
    if fault_at == "done" and when > (migration.ended or 0.0) - _LAST_S:
        fault_at = "ended"
    elif plan.victim == "new" and fault_at in STEPS[:COMMITTED] and (began(migration, "COMMIT") or math.inf) <= when:
        fault_at = "COMMIT"  # between lookup and kill
    seen = world.outage_s(migration.requested, migration.ended or time.time())
    recovered = world.newest().epoch != epoch  # its switch was away for longer than `[recovery] after_s`
    wrong += _untruths(world, plan, migration) + unfit(plan, fault_at, migration, packets, recovered=recovered)
    return {
        "source": source,
        "fault_at": fault_at,
        "outcome": migration.outcome,
        "reason": migration.reason,
        "rolled_back_at": migration.report.get("rolled_back_at"),
        "lost_state": migration.report.get("lost_state"),
        "outage_s": [round(each, 4) for each in (seen.least_s, seen.most_s, seen.noise_s)],
        "pauses": sorted(seen.pauses, key=operator.itemgetter(1))[-_GAPS:],
        "reported_s": (migration.report.get("outage_us") or 0) / 1e6,
        "took_s": round((migration.ended or math.inf) - migration.requested, 2),
        **packets,
        "seconds": round(time.monotonic() - start, 2),
        "wrong": wrong,
        "mistimed": mistimed(plan, migration, seen),
    }


def _happen(world: World, plan: Plan, epoch: int, fault: Fault) -> tuple[str | None, float]:
    """Cause the fault at the planned moment, and undo it if planned.

    Returns the journal's step (None if the victim no longer existed) and the time.
    """

    def reached() -> bool:
        migration = world.migration(epoch)
        return migration.outcome is not None or index(migration.step) >= STEPS.index(plan.step)

    def begun() -> bool:
        return fault.find_new() or world.migration(epoch).outcome is not None

    await_true(reached, _REACHED_S)
    if plan.victim == "new":
        await_true(begun, _REACHED_S)
    time.sleep(plan.delay_s)
    migration, now = world.migration(epoch), time.time()
    # By then the old process has ended, and the new one no longer belongs to the migration.
    if plan.victim in ("old", "new") and migration.outcome is not None:
        return None, now
    if not fault.do():
        return None, now
    now = time.time()
    if plan.for_s is not None:
        time.sleep(plan.for_s)
        fault.undo()
    return "ended" if migration.outcome is not None else migration.step, now


def _told(world: World, plan: Plan, epoch: int) -> list[str]:
    """Check a migration that waits for an operator: its report and the dashboard must say so."""
    if plan.for_s is not None:
        return [f"the migration has not ended {_ENDED_S:g} s after the last fault"]
    waits = world.migration(epoch).report.get("waits")
    page = world.dashboard()
    wrong = []
    if not waits:
        wrong.append("the migration waits, and its report does not say for what")
    if _FAULTLESS in page:
        wrong.append("the migration waits, and the dashboard knows of no fault")
    return wrong


def _untruths(world: World, plan: Plan, migration: Migration) -> list[str]:
    """Return contradictions between the migration's report and reality."""
    location, last = world.location(), world.newest()
    expected = last.target if last.outcome == "done" else last.source
    wrong = []
    if location != expected:
        wrong.append(f"it is {last.outcome} from {last.source} to {last.target}, and runs at {location}")
    if last.epoch != migration.epoch and (last.mode, last.report.get("lost_state") is None) != ("restart", False):
        wrong.append(f"there was another migration: {last}")
    report = migration.report
    needed = {"mode", "freeze_us", "relayed", "state_bytes", "steps", "lost_state", "rolled_back_at", "outage_us"}
    if missing := needed - set(report):
        wrong.append(f"the report lacks {', '.join(sorted(missing))}")
    if (migration.outcome == "rolled-back") != (report.get("rolled_back_at") is not None):
        wrong.append(f"outcome {migration.outcome}, rolled_back_at {report.get('rolled_back_at')}")
    if plan.victim != "agent" and "the agent ended" in (migration.reason or ""):
        wrong.append(f"the fault was at {plan.victim}, and the reason given is: {migration.reason}")
    if migration.outcome not in ("done", "rolled-back"):
        wrong.append(f"outcome {migration.outcome}: {migration.reason}")
    return wrong + world.complaints()


def unfit(
    plan: Plan,
    fault_at: str | None,
    migration: Migration,
    packets: dict[str, Any],
    *,
    recovered: bool = False,
) -> list[str]:
    """Return wrong effects on packets; ``recovered``: another migration reported the loss of state."""
    wrong = [f"{packets[each]} packets {each}" for each in ("duplicated", "reordered") if packets[each]]
    if not packets["flows"]:
        wrong.append("no packet comes through any more")
    crashed = plan.victim == "new" and fault_at == "ended"
    committed = fault_at is not None and index(fault_at) >= COMMITTED
    # The processes hand over before COMMIT is written; what only a dead new one had is lost then (nfs/README.md).
    if plan.mode == "copy" and fault_at == "freeze" and migration.report.get("lost_state") is not None:
        committed = True
    had_packets = fault_at is not None and (plan.victim == "old" or (plan.victim == "new" and (committed or crashed)))
    if packets["lost"] and not (had_packets or plan.switch_and_daemon):
        wrong.append(f"{packets['lost']} packets lost")
    if packets["strayed"] and not crashed and not recovered:
        alone = plan.victim == "old" and fault_at in ("requested", "prepare")  # no other process had its state yet
        copied = plan.mode == "copy" and plan.victim == "new" and committed
        if not (alone or copied):
            wrong.append(f"{packets['strayed']} packets went to another backend")
        elif migration.report.get("lost_state") is None:
            wrong.append(f"{packets['strayed']} packets went to another backend, and the report says of no lost state")
    return wrong


def mistimed(plan: Plan, migration: Migration, seen: Seen) -> list[str]:
    """Return differences between the reported outage and the packets."""
    reported_s = (migration.report.get("outage_us") or 0) / 1e6
    near_s = max(_NEAR_S, _PAUSES * seen.noise_s)
    if not seen.least_s * 0.9 - near_s <= reported_s <= seen.most_s * 1.1 + near_s:
        saw = f"{seen.least_s:.3f} to {seen.most_s:.3f} s"
        return [f"the report says of an outage of {reported_s:.3f} s, packets saw {saw} (+- {near_s:.3f} s)"]
    return []


def main() -> None:
    """Run the command."""
    seed, first, count = map(int, sys.argv[1:])
    for verdict in run(seed, first, count):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
