"""``/api/v1/faults``: faults that may need a person; administrators only."""

import time
from typing import Literal

from apiflask import APIBlueprint

from nfagent import faults
from nfagent.api.schemas import FaultList, FaultOut, iso
from nfagent.api.services import client, services
from nfagent.locations import ONESWITCHD
from nfagent.model import Event

blueprint = APIBlueprint("faults", __name__, tag="faults")


@blueprint.get("/faults")
@blueprint.output(FaultList)
@blueprint.doc(responses=[403])
def list_faults() -> FaultList:
    """List faults of locations and network functions, the worst first; administrators only."""
    client().require_admin("faults")
    known = services().overviews.newest()
    found = faults.faults(known.views)
    listed = [
        FaultOut(
            gravity=each.gravity,
            about="instance",
            id=each.instance,
            name=each.name,
            project=each.project,
            since=iso(each.since),
            text=each.text,
        )
        for each in found
    ]
    return FaultList(faults=[*_disk(known.free_bytes), *_locations(), *_oneswitchd(), *_databases(), *listed])


def _disk(free_bytes: int) -> list[FaultOut]:
    found = faults.disk_fault(free_bytes, services().overviews.waiting_s)
    if found is None:
        return []
    gravity, text = found
    now = iso(time.time())
    return [FaultOut(gravity=gravity, about="disk", id="store", name="store", project=None, since=now, text=text)]


def locations_down() -> list[Event]:
    """Return the newest event of each location that is down."""
    return services().bulletin.down("location", services().desired.catalog.locations)


def databases_down() -> list[Event]:
    """Return the newest event of each switch whose database does not answer."""
    return services().bulletin.down("database", services().desired.catalog.locations)


def _databases() -> list[FaultOut]:
    return [
        _fault("warning", "database", each, f"{each.payload.get('reason')}, so nothing can be started or moved there")
        for each in databases_down()
    ]


def oneswitchd_down() -> Event | None:
    """Return the event that says that oneswitchd does not answer; None: it does."""
    return next(iter(services().bulletin.down("oneswitchd", [ONESWITCHD])), None)


def _oneswitchd() -> list[FaultOut]:
    found = oneswitchd_down()
    if found is None:
        return []
    text = f"it does not answer, so nothing can be moved: {found.payload.get('reason')}"
    return [_fault("warning", "oneswitchd", found, text)]


def _locations() -> list[FaultOut]:
    return [
        _fault("critical", "location", each, f"it is down: {each.payload.get('reason')}") for each in locations_down()
    ]


def _fault(
    gravity: Literal["critical", "warning"],
    about: Literal["location", "oneswitchd", "database"],
    event: Event,
    text: str,
) -> FaultOut:
    """Return a fault of the server, which no project owns, from the event that told of it."""
    name, since = event.subject, iso(event.time)
    return FaultOut(gravity=gravity, about=about, id=name, name=name, project=None, since=since, text=text)
