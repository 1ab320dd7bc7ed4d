"""HTML of the page's fragments. Templates escape everything, because names come from users."""

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nfagent.dashboard import cards, chain_rows, figures, filters, lanes, links, news, progress, sparkline, talk
from nfagent.dashboard.cards import Card
from nfagent.dashboard.function import Function
from nfagent.dashboard.snapshot import Snapshot

_templates = Environment(
    loader=PackageLoader("nfagent.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_LONGEST_WORD = 32


def _whole(text: str) -> Markup:
    """Escape a text whose words with hyphens, such as names, stay in one line; very long ones may break."""
    return Markup(" ").join(
        Markup('<span class="whole">{}</span>').format(word)
        if "-" in word and len(word) <= _LONGEST_WORD
        else escape(word)
        for word in text.split(" ")
    )


_templates.filters["whole"] = _whole
_templates.globals.update(box_width=sparkline.WIDTH, box_height=sparkline.HEIGHT)

_PLACEHOLDER = re.compile(r'(<(\w+) id="([\w-]+)"[^<>]* data-part>)(</\2>)')
"""An element whose content is a fragment of its own, so that the fragment around it stays the same."""


def clock(at: float) -> str:
    """Format the time of day as the page shows it."""
    return figures.clock(at, at)


def page(fragments: Mapping[str, str], version: str, datapath: str, at: float, *, signed_in: bool) -> str:
    """Render the page from its fragments by id."""
    numbers = sorted(int(name.removeprefix("link-")) for name in fragments if name.startswith("link-"))
    html = _render("page.html", version=version, datapath=datapath, nics=numbers, clock=clock(at), signed_in=signed_in)
    return filled(html, fragments)


def filled(html: str, fragments: Mapping[str, str]) -> str:
    """Put fragments into the placeholders of HTML, and into theirs."""

    def fill(found: re.Match[str]) -> str:
        return found[1] + filled(fragments[found[3]], fragments) + found[4]

    return _PLACEHOLDER.sub(fill, html)


def login(refusal: str | None) -> str:
    """Render the form that asks for a token."""
    return _render("login.html", refusal=refusal)


def fragments(known: Snapshot) -> dict[str, str]:
    """Render HTML by the ids of its elements; one with placeholders comes before those that fill them."""
    never, ended = cards.idle(known)
    found = {
        "banner": _render("banner.html", notices=news.notices(known)),
        "tiles": _render("tiles.html", tiles=news.tiles(known)),
        "filters": _render("filters.html", choices=filters.choices(known)),
        "never": _render("idle.html", title="Never ran", key="never", number=len(never)),
        "ended": _render("idle.html", title="Not running", key="ended", number=len(ended)),
        "chains": _render("chains.html", chains=chain_rows.shown(known), rest=chain_rows.rest(known)),
        "map": _render("map.html", map=talk.drawn(known)),
        "placement": _render("placement.html", text=news.placement(known)),
        "migrations": _render("migrations.html", moves=progress.shown(known), past=progress.past(known)),
        "events": _render("events.html", events=news.events(known)),
    }
    lists = {"never": never, "ended": ended}
    for number, place in enumerate(known.places):
        key = "hub" if place.is_hub else f"lane-{number}"
        lane = lanes.lane(known, place)
        found[key] = _render("lane.html", lane=lane, key=key)
        lists[key] = lane.cards
        if not place.is_hub:
            found[f"link-{number}"] = _render("link.html", link=links.link(known, place), number=number)
    found |= {f"{key}-cards": _list(key, shown, is_crowded=known.is_crowded) for key, shown in lists.items()}
    card = _templates.get_template("row.html" if known.is_crowded else "card.html")
    for shown in lists.values():
        found |= {f"card-{each.key}": card.render(nf=each) for each in shown}
    return found


def function_fragments(shown: Function, log: str) -> dict[str, str]:
    """Render the parts of a function's page that change, by the ids of their elements."""
    return {
        "state": _render("function_state.html", function=shown, nf=shown.card),
        "talk": _render("talk.html", pairs=shown.pairs),
        "configuration": _render("configuration.html", function=shown),
        "log": _render("log.html", log=log),
        "migrations": _render("migrations.html", moves=shown.moves, past=shown.past),
        "events": _render("events.html", events=shown.events),
    }


def function_page(shown: Function, fragments: Mapping[str, str], at: float, refusal: str | None) -> str:
    """Render a function's page from its fragments."""
    html = _render("function.html", function=shown, nf=shown.card, clock=clock(at), refusal=refusal)
    return filled(html, fragments)


def missing(detail: str) -> str:
    """Render the page of a function that does not exist."""
    return _render("missing.html", detail=detail)


def _list(key: str, shown: tuple[Card, ...], *, is_crowded: bool) -> str:
    empty = "no network functions" if key not in ("never", "ended") else None
    return _render("list.html", keys=[each.key for each in shown], is_crowded=is_crowded, empty=empty)


def _render(name: str, **values: Any) -> str:
    return _templates.get_template(name).render(values)
