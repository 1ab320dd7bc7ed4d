"""The draws of each version. OpenFlow 1.4 and 1.5 send what 1.3 sends in their own form, and more."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle.dialects import DIALECTS, messages10, messages15
from tests.oracle.dialects.openflow13 import OpenFlow13
from tests.oracle.dialects.openflow14 import TABLE_DESC
from tests.oracle.draws import (
    bundles,
    flows,
    groups,
    groups10,
    nicira_flow_mods,
    openflow10,
    openflow14,
    openflow15,
    packets,
    requests,
)
from tests.oracle.draws.model import CONTROLLERS, Draw, Maker, Model, Sender

_IN_14, _IN_15 = DIALECTS[5], DIALECTS[messages15.VERSION]


@dataclass(frozen=True)
class Draws:
    """The messages of a version."""

    changes: tuple[Maker, ...]
    packet_out: Maker
    request: Maker
    between: tuple[int, ...]
    """Types of requests that come among changes."""


def _in(dialect: OpenFlow13, maker: Maker) -> Maker:
    def make(draw: Draw, model: Model) -> bytes:
        return dialect.translated(maker(draw, model))

    make.__name__ = maker.__name__
    return make


def _request_14(draw: Draw, model: Model) -> bytes:
    """Draw a request; not for descriptions of queues, which a dummy device pretends to have."""
    if draw(st.integers(0, 7)):
        return _IN_14.translated(requests.request(draw, model))
    return _IN_14.multipart(model.next_xid(), TABLE_DESC)


_EVERY, _LATER = (1, 4, 4, 5, 6, 6), (4, 5, 6, 6)
_CHANGES = (
    *(flows.add_flow,) * 10,
    *(flows.change_flows,) * 4,
    *(nicira_flow_mods.add_flow, nicira_flow_mods.change_or_add, nicira_flow_mods.change_or_add),
    *(groups.change_groups,) * 3,
    *(groups.change_meters, groups.change_meters, requests.change_switch),
)
_BETWEEN = (of.BARRIER_REQUEST, of.BARRIER_REQUEST, of.GET_CONFIG_REQUEST, 99)
DRAWS = {
    1: Draws(
        (
            *(openflow10.add_flow,) * 10,
            *(openflow10.change_flows,) * 6,
            *(groups10.change_groups,) * 3,
            openflow10.change_switch,
        ),
        openflow10.packet_out,
        openflow10.request,
        (messages10.BARRIER_REQUEST, messages10.BARRIER_REQUEST, of.GET_CONFIG_REQUEST, 99),
    ),
    4: Draws(_CHANGES, packets.packet_out, requests.request, _BETWEEN),
    5: Draws(
        (
            *(_in(_IN_14, maker) for maker in _CHANGES if maker is not flows.add_flow),
            *(openflow14.add_flow,) * 10,
            openflow14.change_table,
        ),
        _in(_IN_14, packets.packet_out),
        _request_14,
        _BETWEEN,
    ),
    6: Draws(
        (
            *(openflow15.add_flow,) * 10,
            *(openflow15.change_flows,) * 4,
            *(openflow15.change_groups,) * 5,
            *(_in(_IN_15, maker) for maker in (groups.change_meters, groups.change_meters, requests.change_switch)),
            openflow14.change_table,
        ),
        openflow15.packet_out,
        openflow15.request,
        _BETWEEN,
    ),
}


def of_sender(model: Model) -> Draws:
    """Return the draws of the controller that sends."""
    return DRAWS[model.sender.version]


def bundle(draw: Draw, model: Model) -> list[bytes]:
    """Draw a bundle; OpenFlow 1.0 has none."""
    version = model.sender.version
    if version == 1:
        return [draw(st.sampled_from(DRAWS[1].changes))(draw, model)]
    bundled = openflow15.BUNDLED if version == messages15.VERSION else bundles.BUNDLED
    return [DIALECTS[version].translated(each) for each in bundles.bundle(draw, model, bundled)]


def change_treatment(draw: Draw, model: Model, *, roles: bool) -> bytes:
    """Draw a role, or what a controller is told."""
    if model.sender.version >= openflow14.FIRST and draw(st.integers(0, 2)) == 0:
        return openflow14.choose_notifications(draw, model)
    return DIALECTS[model.sender.version].translated(requests.change_treatment(draw, model, roles=roles))


def begin(draw: Draw, model: Model) -> None:
    """Draw the versions of all controllers.

    What only OpenFlow 1.0 has is drawn if all speak it; what it reads otherwise than later versions, if none does.
    """
    model.versions = draw(st.sampled_from(((1,), _EVERY, _EVERY, _LATER, _LATER)))
    model.senders = {number: Sender(draw(st.sampled_from(model.versions))) for number in range(CONTROLLERS)}
    model.sender = model.senders[0]
    model.keeps_sets = not model.is_old and draw(st.booleans())
