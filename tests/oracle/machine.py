"""The state machine that hypothesis drives: possible next steps, given those drawn before. `draws` has the messages."""

from collections.abc import Callable

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.dialects import DIALECTS
from tests.oracle.draws import nicira, openflow14, versions, watching
from tests.oracle.draws.model import CONTROLLERS, Draw, Model, Sender
from tests.oracle.draws.packets import packet
from tests.oracle.draws.timed import timed
from tests.oracle.steps import (
    BreakLink,
    Bulk,
    Check,
    Execute,
    GoHome,
    Inject,
    Interface,
    Move,
    PortMod,
    Reconnect,
    RestartOneswitchd,
    RestartSwitch,
    Resume,
    Send,
    Step,
)

_PORT_CONFIG = (0, 1, 4, 32, 64, 0x65, 2, 8, 16, 24)
"""The last ones only OpenFlow 1.0 has."""


@st.composite
def begin(draw: Draw, model: Model) -> list[Step]:
    """Draw the versions of the controllers."""
    versions.begin(draw, model)
    chosen = ((number, sender.version) for number, sender in model.senders.items())
    return [Reconnect(number, version) for number, version in chosen if version != of.VERSION]


@st.composite
def step(draw: Draw, model: Model) -> Step:
    """Draw the next step."""
    if model.has_frames and model.pauses and draw(st.integers(0, 1)):
        if draw(st.integers(0, 7)) == 0:
            model.senders = {number: Sender(sender.version) for number, sender in model.senders.items()}
            return RestartOneswitchd()
        model.has_frames = False
        return Resume(draw(st.integers(0, CONTROLLERS - 1)), model.next_xid())
    weights = [weight for weight, _ in _STEPS]
    kind = draw(st.integers(0, sum(weights) - 1))
    for weight, maker in _STEPS:
        if kind < weight:
            model.sender = model.senders[0]
            made = maker(draw, model)
            model.has_frames = isinstance(made, Inject)
            return made
        kind -= weight
    raise AssertionError


def _controller(draw: Draw, model: Model, numbers: tuple[int, ...] = (0, 0, 0, 0, 0, 1, 2)) -> int:
    """Draw the controller that sends the messages that are drawn next."""
    number = draw(st.sampled_from(numbers))
    model.sender = model.senders[number]
    return number


def _changes(draw: Draw, model: Model) -> Step:
    controller = _controller(draw, model)
    draws = versions.of_sender(model)
    count = draw(st.integers(1, 4))
    makers = [draw(st.sampled_from(draws.changes)) for _ in range(count)]
    if controller:
        # Open vSwitch accepts SET_CONFIG from a slave on a management connection, as these are.
        makers = [maker for maker in makers if maker.__name__ != "change_switch"] or [draws.changes[0]]
    messages = [maker(draw, model).hex() for maker in makers]
    if draw(st.integers(0, 3)) == 0:
        among = DIALECTS[model.sender.version].message(draw(st.sampled_from(draws.between)), model.next_xid())
        messages.insert(draw(st.integers(0, len(messages))), among.hex())
    return Send(tuple(messages), " ".join(maker.__name__ for maker in makers), controller)


def _frames(draw: Draw, model: Model) -> Step:
    data, port = draw(packet(model))
    # A cached flow acts a moment longer than the rules that the first frame makes Open vSwitch learn.
    return Inject(port, (data.hex(),) * draw(st.sampled_from((1, 1, 1, 1 if model.learns else 2))))


def _packet_out(draw: Draw, model: Model) -> Step:
    controller = _controller(draw, model)
    return Send((versions.of_sender(model).packet_out(draw, model).hex(),), "packet_out", controller)


def _request(draw: Draw, model: Model) -> Step:
    controller = _controller(draw, model, (0, 0, 1, 2))
    return Send((versions.of_sender(model).request(draw, model).hex(),), "request", controller)


def _bundle(draw: Draw, model: Model) -> Step:
    controller = _controller(draw, model)
    return Send(tuple(message.hex() for message in versions.bundle(draw, model)), "bundle", controller)


def _treatment(draw: Draw, model: Model) -> Step:
    """Draw what a controller is told. The first is never a slave."""
    controller = _controller(draw, model, (0, 1, 1, 2))
    is_nicira = model.sender.version == 1 or draw(st.booleans())
    maker: Callable[..., bytes] = nicira.message if is_nicira else versions.change_treatment
    message = maker(draw, model, roles=controller != 0)
    return Send((message.hex(),), maker.__name__, controller)


def _monitor(draw: Draw, model: Model) -> Step:
    controller = _controller(draw, model, (0, 0, 1, 2))
    return Send((watching.message(draw, model).hex(),), "monitor", controller)


def _port_mod(draw: Draw, model: Model) -> Step:
    """Draw a port-mod."""
    port = draw(st.sampled_from((*pools.PORTS, *pools.PORTS, 7, 0)))
    config, mask = draw(st.sampled_from(_PORT_CONFIG)), draw(st.sampled_from(_PORT_CONFIG))
    said = openflow14.port_properties(draw).hex() if draw(st.booleans()) else None
    return PortMod(port, config, mask, draw(st.integers(0, 9)) > 0, model.next_xid(), said)


def _move(draw: Draw, model: Model) -> Step:
    move = Move if model.stateful else draw(st.sampled_from((Move, Move, Execute)))
    port = draw(st.sampled_from((0, *pools.PORTS) if move is Move else pools.PORTS))
    return move(port, draw(st.integers(0, 2)))


def _interface(draw: Draw, _: Model) -> Step:
    return Interface(draw(st.sampled_from(pools.PORTS)), draw(st.booleans()))


def _break_link(draw: Draw, model: Model) -> Step:
    changes = versions.of_sender(model).changes
    makers = draw(st.lists(st.sampled_from(changes), max_size=0 if model.gathers else 3))
    return BreakLink(draw(st.integers(0, 1)), tuple(maker(draw, model).hex() for maker in makers))


def _reconnect(draw: Draw, model: Model) -> Step:
    """Draw a controller that connects again, mostly over another version."""
    number = draw(st.sampled_from((0, 0, 1, 2)))
    version = draw(st.sampled_from(model.versions))
    model.senders[number] = Sender(version)
    return Reconnect(number, version)


def _rare(draw: Draw, model: Model) -> Step:
    """Draw a slow step."""
    kind = draw(st.integers(0, 5))
    if kind < 2:
        model.senders = {number: Sender(sender.version) for number, sender in model.senders.items()}
        return RestartOneswitchd()
    if kind < 3 and not model.stateful:
        return RestartSwitch(draw(st.integers(0, 2)))
    if kind < 4 and model.gathers and draw(st.integers(0, 3)) == 0:
        model.forget_all()
        return GoHome()
    if kind < 5:
        return timed(draw, model)
    if any(sender.monitors for sender in model.senders.values()):
        return Check()  # known difference: one bridge pauses sooner when many reports are unread
    return Bulk(draw(st.sampled_from((20, 30))), 250)


def _check(_: Draw, __: Model) -> Step:
    return Check()


_STEPS: tuple[tuple[int, Callable[[Draw, Model], Step]], ...] = (
    (28, _changes),
    (32, _frames),
    (4, _packet_out),
    (4, _request),
    (2, _port_mod),
    (6, _move),
    (5, _treatment),
    (2, _interface),
    (2, _break_link),
    (1, _reconnect),
    (4, _monitor),
    (1, _rare),
    (2, _check),
    (8, _bundle),
)
"""How often each is drawn, of their sum."""
