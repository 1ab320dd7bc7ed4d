"""One network function: everything that is known about it."""

import json
from dataclasses import dataclass
from typing import Any

from nfagent.dashboard import cards, figures, news, progress, talk
from nfagent.dashboard.cards import Card
from nfagent.dashboard.news import News, Notice
from nfagent.dashboard.progress import MigrationProgress, Past
from nfagent.dashboard.snapshot import Snapshot
from nfagent.dashboard.talk import Pair
from nfagent.model import View

_PAIRS = 12


@dataclass(frozen=True)
class Port:
    """A virtual port of a function; ``flow_id`` None: oneswitchd does not report it."""

    number: int
    name: str
    mac: str
    flow_id: int | None


@dataclass(frozen=True)
class Function:
    """A network function.

    Attributes:
        since: since when it is in its state, in words; None: it does not run.
        configuration: as JSON, indented.
        may_change: whether the viewer may act upon it.
        targets: locations to which it could be moved.
    """

    card: Card
    identity: str
    created: str
    since: str | None
    generation: int
    labels: tuple[tuple[str, str], ...]
    pin: str | None
    notices: tuple[Notice, ...]
    ports: tuple[Port, ...]
    pairs: tuple[Pair, ...]
    configuration: str
    moves: tuple[MigrationProgress, ...]
    past: tuple[Past, ...]
    events: tuple[News, ...]
    places: tuple[str, ...]
    may_change: bool
    targets: tuple[str, ...]


def function(known: Snapshot, view: View, config: dict[str, Any], *, may_change: bool) -> Function:
    """Word a function, which is the only one of its snapshot.

    Args:
        known: the snapshot.
        view: the function.
        config: its configuration, as the viewer may see it.
        may_change: whether the viewer may act upon it.
    """
    instance, running = view.instance, view.running
    here = running.location if running else None
    places = tuple(place.name for place in known.places)
    numbers = {port.number for port in instance.ports}
    return Function(
        card=cards.single(known, view),
        identity=instance.id,
        created=figures.clock(instance.created, known.at),
        since=figures.clock(running.since, known.at) if running else None,
        generation=instance.generation,
        labels=tuple(sorted(instance.labels.items())),
        pin=instance.pin,
        notices=news.functions_at_fault(known),
        ports=tuple(
            Port(port.number, port.name, port.mac, cards.flow_id(known, port.number)) for port in instance.ports
        ),
        pairs=tuple(talk.pairs(known, numbers)[:_PAIRS]),
        configuration=json.dumps(config, indent=2, ensure_ascii=False),
        moves=tuple(move for move in progress.shown(known) if move.outcome is None),
        past=progress.past(known),
        events=news.events(known),
        places=places,
        may_change=may_change,
        targets=tuple(place for place in places if place != here) if running else (),
    )
