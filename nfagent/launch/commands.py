"""Command lines of kinds.

A kind's words may contain placeholders: ``{config}`` a file with the instance's configuration as JSON, ``{control}``
the path of the socket to serve, ``{workers}``, ``{name}``, ``{id}``; the word ``{ports}`` becomes ``--port INTERFACE``
for each port.
"""

from dataclasses import dataclass

from nfagent.errors import LaunchError
from nfagent.model import Flavor, Instance, Kind

_PORTS = "{ports}"
_HOLD = "--hold"

ARENA_FD, RINGS_FD = 7, 8
"""Descriptor numbers of an ended process's state and rings at its successor."""


@dataclass(frozen=True)
class Places:
    """A process's names at its location: paths, and interfaces in the order of the ports."""

    config: str
    control: str
    interfaces: tuple[str, ...]


def command_line(
    kind: Kind, instance: Instance, flavor: Flavor | None, places: Places, *, hold: bool = False, adopt: bool = False
) -> list[str]:
    """Build an instance's command line.

    Args:
        kind: its kind.
        instance: the instance.
        flavor: its flavor; None: one worker.
        places: its names at the location.
        hold: whether it waits for a migration to commit.
        adopt: whether it continues with the state and the rings behind `ARENA_FD` and `RINGS_FD`.

    Raises:
        LaunchError: unknown placeholder.
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
                f"kind {kind.name}: unknown placeholder in {word!r} ({error}); use one of {known}, {_PORTS}"
            ) from error
    inherited = ["--arena-fd", str(ARENA_FD), "--rings-fd", str(RINGS_FD)] if adopt else []
    return [*words, *([_HOLD] if hold else []), *inherited]
