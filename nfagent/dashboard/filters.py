"""Choices for narrowing down the network functions that the page shows; the browser applies them."""

from dataclasses import dataclass

from nfagent.dashboard.snapshot import Snapshot


@dataclass(frozen=True)
class Choices:
    """Values of which a reader may choose one."""

    states: tuple[str, ...]
    places: tuple[str, ...]
    projects: tuple[str, ...]


def choices(known: Snapshot) -> Choices:
    """Return the values that occur now."""
    return Choices(
        states=tuple(sorted({view.status for view in known.views})),
        places=tuple(place.name for place in known.places),
        projects=tuple(sorted({view.instance.project for view in known.views})),
    )
