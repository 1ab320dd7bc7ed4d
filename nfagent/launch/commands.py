"""Command lines of kinds.

A kind's words may hold placeholders: ``{config}`` a file with the instance's configuration as JSON, ``{control}`` the
socket to serve, ``{workers}``, ``{name}``, ``{id}``; the word ``{ports}`` becomes ``--port INTERFACE`` for each port.
"""

from dataclasses import dataclass

from nfagent.errors import LaunchError
from nfagent.model import Flavor, Instance, Kind

_PORTS = "{ports}"
_HOLD = "--hold"

ARENA_FD, RINGS_FD = 7, 8
"""Numbers that the state and the rings of a process that is no more have at the one that goes on with them."""


@dataclass(frozen=True)
class Places:
    """What of a process has a name where it runs: paths, and interfaces in the order of the ports."""

    config: str
    control: str
    interfaces: tuple[str, ...]


def command_line(
    kind: Kind, instance: Instance, flavor: Flavor | None, places: Places, *, hold: bool = False, adopt: bool = False
) -> list[str]:
    """What is to be run for an instance.

    Args:
        kind: of it.
        instance: whose.
        flavor: of it; None: one worker.
        places: what has a name where it runs.
        hold: it waits for a migration to commit.
        adopt: it goes on with the state and the rings behind `ARENA_FD` and `RINGS_FD`.

    Raises:
        LaunchError: a placeholder that there is not.
    """
    values = {
        "config": places.config,
        "control": places.control,
        "workers": str(flavor.workers if flavor else 1),
        "name": instance.name,
        "id": instance.id,
    }
    words: list[str] = []
    for word in kind.command:
        if word == _PORTS:
            words += [each for interface in places.interfaces for each in ("--port", interface)]
            continue
        try:
            words.append(word.format_map(values))
        except (KeyError, ValueError, IndexError) as error:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise LaunchError(
                f"kind {kind.name}: {word!r} has a placeholder that there is not ({error}); there are {known}, {_PORTS}"
            ) from error
    inherited = ["--arena-fd", str(ARENA_FD), "--rings-fd", str(RINGS_FD)] if adopt else []
    return [*words, *([_HOLD] if hold else []), *inherited]
