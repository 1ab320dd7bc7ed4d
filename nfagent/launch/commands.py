"""Command lines of kinds.

A kind's words may contain placeholders: ``{config}`` a file with the instance's configuration as JSON, ``{control}``
the path of the socket to serve, ``{workers}``, ``{name}``, ``{id}``. The word ``{ports}`` becomes ``--port INTERFACE``
for each port. The word ``{offload}`` becomes ``--offload SOCKET --offload-port N --offload-owner OWNER`` if server.toml
has oneswitchd's offload socket and the instance has exactly one port, otherwise nothing. The word ``{offload_ports}``
does so with any number of ports, with ``--offload-port N`` for each.
"""

from dataclasses import dataclass

from nfagent.errors import LaunchError
from nfagent.homing import owner_of
from nfagent.model import Flavor, Instance, Kind

_PORTS = "{ports}"
_OFFLOAD, _OFFLOAD_PORTS = "{offload}", "{offload_ports}"
_HOLD = "--hold"

ARENA_FD, RINGS_FD = 7, 8
"""Descriptor numbers of an ended process's state and rings at its successor."""


@dataclass(frozen=True)
class Places:
    """A process's names at its location.

    Attributes:
        config, control: paths.
        interfaces: in the order of the ports.
        offload: path of oneswitchd's offload socket; None: it has none.
    """

    config: str
    control: str
    interfaces: tuple[str, ...]
    offload: str | None = None


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
        if word == _OFFLOAD_PORTS or (word == _OFFLOAD and len(instance.ports) == 1):
            words += _offload(instance, places)
            continue
        if word == _OFFLOAD:
            continue  # a rule's packets enter and leave by one virtual port
        try:
            words.append(word.format_map(values))
        except (KeyError, ValueError, IndexError) as error:
            known = ", ".join([*(f"{{{name}}}" for name in values), _PORTS, _OFFLOAD, _OFFLOAD_PORTS])
            raise LaunchError(
                f"kind {kind.name}: unknown placeholder in {word!r} ({error}); use one of {known}"
            ) from error
    inherited = ["--arena-fd", str(ARENA_FD), "--rings-fd", str(RINGS_FD)] if adopt else []
    return [*words, *([_HOLD] if hold else []), *inherited]


def _offload(instance: Instance, places: Places) -> list[str]:
    if places.offload is None or not instance.ports:
        return []
    ports = [word for port in instance.ports for word in ("--offload-port", str(port.number))]
    return ["--offload", places.offload, *ports, "--offload-owner", owner_of(instance)]
