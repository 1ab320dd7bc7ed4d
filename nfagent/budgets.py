"""How long each step of a migration may take until it is overdue, and what it waits for meanwhile.

The limits are sums of the limits of a step's waits (docs/nfagent.md, "Waits"), each waited for once. A retry takes
longer: then the step is overdue, and nothing but that has gone wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ANSWER_S = 2.0  # status of a process, which a healthy one answers at once
START_S = 10.0  # of a process in a migration
MOVE_S = 8.0  # oneswitchd has said by then what the move waits for
PASS_S = 1.0  # for markers to try the way
MARKED_S = 6.0  # for markers to pass a switch that is stalled; MARKED of nf_runtime::migration
DRAIN_S = 2.0  # limit for holding packets; after it, paths without a marker are abandoned
RELAY_S = 10.0  # for relaying to another machine
HANDOVER_S = 20.0
STOP_S = 2.0  # the old process has nothing left to do
QUIESCE_S = 3.0
COPY_S = 600.0

_COPY_AT_LEAST_S = 10.0
_COPY_MBPS = 100.0
"""A slow link. Changes made meanwhile are copied again, in up to five rounds."""
_COPY_ROUNDS = 2.0
_BYTES_PER_MBPS_S = 125_000.0


@dataclass(frozen=True)
class Budget:
    """A step's time.

    Attributes:
        limit_s: until it is overdue.
        waits_for: with the placeholders ``source`` and ``target``.
        holds: whether packets wait meanwhile.
    """

    limit_s: float
    waits_for: str
    holds: bool = False


_BUDGETS: Mapping[str, Budget] = {
    "requested": Budget(60.0, "migrations before it, or a free thread"),
    "prepare": Budget(
        START_S + MOVE_S + ANSWER_S + PASS_S,
        "a process at {target} to start, and for oneswitchd to prepare rules for its ports",
    ),
    "precopy": Budget(_COPY_AT_LEAST_S, "the state to be copied from {source} to {target}"),
    "freeze": Budget(
        MARKED_S + 2 * ANSWER_S, "the switches of {source} and {target}, and for the old process to stop", holds=True
    ),
    "COMMIT": Budget(2 * ANSWER_S, "the new process at {target} to take over", holds=True),
    "flip": Budget(MOVE_S + QUIESCE_S, "oneswitchd and the switches to lead packets to {target}"),
    "drain": Budget(
        DRAIN_S + RELAY_S + HANDOVER_S, "the old process at {source} to relay, and the new one to process it"
    ),
    "done": Budget(MOVE_S + STOP_S, "oneswitchd to remove the old paths, and the old process at {source} to end"),
}
_BACK = Budget(
    START_S + MOVE_S + ANSWER_S, "a process at {source} to go on, and for oneswitchd to undo the move of its ports"
)


def budget(step: str, report: Mapping[str, Any]) -> Budget:
    """Return the budget of a journalled step, by the migration's report."""
    if report.get("rolled_back_at") is not None:
        return _BACK
    found = _BUDGETS.get(step, _BUDGETS["requested"])
    if step != "precopy":
        return found
    mbps = min(report.get("rate_mbps") or _COPY_MBPS, _COPY_MBPS)
    copying_s = _COPY_ROUNDS * (report.get("state_bytes") or 0) / (mbps * _BYTES_PER_MBPS_S)
    return Budget(min(COPY_S, found.limit_s + copying_s), found.waits_for)
