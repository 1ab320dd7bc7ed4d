"""Tracks failed moves: an instance stays for a while after each, longer every time.

It is derived from the journal of migrations, so that it survives restarts of the agent.
"""

import time

from nfagent.store import Store, migrations

_FIRST_S = 30.0
_LAST_S = 3600.0


class Setbacks:
    """Reads the journal.

    Args:
        store: the store with the journal.

    Attributes:
        held: reasons why instances stay for now, by id.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = time.time()
        self.held: dict[str, str] = {}
        self._moved: set[str] = set()

    def take_moved(self) -> set[str]:
        """Return the ids of instances that have moved since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def look(self) -> None:
        """Read the migrations that have ended."""
        now = time.time()
        ended = migrations.endings(self._store.read, now - 2 * _LAST_S)
        self._moved |= {each.instance for each in ended if each.outcome == "done" and each.ended > self._seen}
        self._seen = max([self._seen, *(each.ended for each in ended)])
        failures: dict[str, int] = {}
        newest: dict[str, float] = {}
        well: set[str] = set()
        for each in ended:
            if each.outcome == "done":
                well.add(each.instance)
            elif each.outcome != "cancelled" and each.instance not in well:
                newest.setdefault(each.instance, each.ended)
                failures[each.instance] = failures.get(each.instance, 0) + 1
        self.held = {
            instance: text for instance, count in failures.items() if (text := _held(count, newest[instance], now))
        }


def _held(failures: int, since: float, now: float) -> str | None:
    until = since + min(_FIRST_S * 2.0 ** min(failures - 1, 20), _LAST_S)
    if until <= now:
        return None
    at = time.strftime("%H:%M:%S", time.gmtime(until))
    return f"its last {failures} migration(s) failed; it stays until {at} UTC"
