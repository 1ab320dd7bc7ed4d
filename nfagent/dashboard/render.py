"""HTML of the page's fragments. Templates escape everything, because names come from users."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nfagent.dashboard import figures, lanes, news, progress, sparkline
from nfagent.dashboard.snapshot import Snapshot

_templates = Environment(
    loader=PackageLoader("nfagent.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(box_width=sparkline.WIDTH, box_height=sparkline.HEIGHT)


def clock(at: float) -> str:
    """Format the time of day as the page shows it."""
    return figures.clock(at, at)


def page(fragments: Mapping[str, str], version: str, datapath: str, at: float, *, signed_in: bool) -> str:
    """Render the page from its fragments by id."""
    nics = sorted(int(name.removeprefix("link-")) for name in fragments if name.startswith("link-"))
    safe = {name: Markup(html) for name, html in fragments.items()}  # already escaped
    return _render(
        "page.html",
        fragments=safe,
        version=version,
        datapath=datapath,
        nics=nics,
        clock=clock(at),
        signed_in=signed_in,
    )


def login(refusal: str | None) -> str:
    """Render the form that asks for a token."""
    return _render("login.html", refusal=refusal)


def fragments(known: Snapshot) -> dict[str, str]:
    """Render HTML by the ids of its elements."""
    hub = next(number for number, place in enumerate(known.places) if place.is_hub)
    found = {
        "banner": _render("banner.html", notices=news.notices(known)),
        "tiles": _render("tiles.html", tiles=news.tiles(known)),
        "waiting": _render("waiting.html", cards=lanes.waiting(known)),
        "placement": _render("placement.html", text=news.placement(known)),
        "migrations": _render("migrations.html", moves=progress.shown(known), past=progress.past(known)),
        "events": _render("events.html", events=news.events(known)),
        "hub": _render("lane.html", lane=lanes.lane(known, known.places[hub]), key="hub"),
    }
    for number, place in enumerate(known.places):
        if number != hub:
            found[f"link-{number}"] = _render("link.html", link=lanes.link(known, place), number=number)
            found[f"lane-{number}"] = _render("lane.html", lane=lanes.lane(known, place), key=f"lane-{number}")
    return found


def _render(name: str, **values: Any) -> str:
    return _templates.get_template(name).render(values)
