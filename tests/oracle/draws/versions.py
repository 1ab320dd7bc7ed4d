"""The draws of each version. OpenFlow 1.4 sends what 1.3 sends in its own form, and more."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle.dialects import messages10, openflow14
from tests.oracle.draws import bundles, flows, groups, openflow10, packets, requests
from tests.oracle.draws.model import CONTROLLERS, Draw, Model, Sender

Maker = Callable[[Draw, Model], bytes]
_IN_14 = openflow14.OpenFlow14()


@dataclass(frozen=True)
class Draws:
    """The messages of a version."""

    changes: tuple[Maker, ...]
    packet_out: Maker
    request: Maker
    between: tuple[int, ...]
    """Types of requests that come among changes."""


def _in_14(maker: Maker) -> Maker:
    def make(draw: Draw, model: Model) -> bytes:
        return _IN_14.translated(maker(draw, model))

    make.__name__ = maker.__name__
    return make


def _request_14(draw: Draw, model: Model) -> bytes:
    """Draw a request; not for descriptions of queues, which a dummy device pretends to have."""
    if draw(st.integers(0, 7)):
        return _IN_14.translated(requests.request(draw, model))
    return _IN_14.multipart(model.next_xid(), openflow14.TABLE_DESC)


_CHANGES = (
    *(flows.add_flow,) * 10,
    *(flows.change_flows,) * 4,
    *(groups.change_groups,) * 3,
    *(groups.change_meters, groups.change_meters, requests.change_switch),
)
_BETWEEN = (of.BARRIER_REQUEST, of.BARRIER_REQUEST, of.GET_CONFIG_REQUEST, 99)
DRAWS = {
    1: Draws(
        (*(openflow10.add_flow,) * 10, *(openflow10.change_flows,) * 6, openflow10.change_switch),
        openflow10.packet_out,
        openflow10.request,
        (messages10.BARRIER_REQUEST, messages10.BARRIER_REQUEST, of.GET_CONFIG_REQUEST, 99),
    ),
    4: Draws(_CHANGES, packets.packet_out, requests.request, _BETWEEN),
    5: Draws(tuple(map(_in_14, _CHANGES)), _in_14(packets.packet_out), _request_14, _BETWEEN),
}


def of_sender(model: Model) -> Draws:
    """Return the draws of the controller that sends."""
    return DRAWS[model.sender.version]


def bundle(draw: Draw, model: Model) -> list[bytes]:
    """Draw a bundle; OpenFlow 1.0 has none."""
    if model.sender.version == 1:
        return [draw(st.sampled_from(DRAWS[1].changes))(draw, model)]
    messages = bundles.bundle(draw, model)
    return messages if model.sender.version == of.VERSION else [_IN_14.translated(each) for each in messages]


def change_treatment(draw: Draw, model: Model, *, roles: bool) -> bytes:
    """Draw a role, or what a controller is told."""
    message = requests.change_treatment(draw, model, roles=roles)
    return message if model.sender.version == of.VERSION else _IN_14.translated(message)


def versions(draw: Draw) -> dict[int, Sender]:
    """Draw the versions of all controllers; what only 1.0 has is drawn if all speak it."""
    chosen = draw(st.sampled_from((1, None, None, None, None)))
    each = lambda: draw(st.sampled_from((1, 4, 4, 5)))  # noqa: E731
    return {number: Sender(chosen or each()) for number in range(CONTROLLERS)}
