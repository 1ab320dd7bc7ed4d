"""Rules with timeouts."""

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.dialects import DIALECTS
from tests.oracle.dialects import messages10 as m
from tests.oracle.draws import openflow10
from tests.oracle.draws.model import Draw, Model
from tests.oracle.draws.packets import packet
from tests.oracle.openflow import FlowMod
from tests.oracle.steps import Timed

_NOBODY = 0x0200000000FE


def timed(draw: Draw, model: Model) -> Timed:
    """Draw rules with timeouts; the model omits them, as no other step touches them."""
    messages, first, is_old = [], None, model.sender.version == 1
    for number in range(draw(st.integers(1, 4))):
        fields = openflow10.match(draw, model) if is_old else draw(pools.match())
        first = first or FlowMod(fields=fields)
        model.fresh_priority += 1
        idle, hard = draw(st.sampled_from(((1, 0), (1, 0), (0, 2))))
        if hard:
            # No packet: the count before it ends is unpredictable.
            port = draw(st.sampled_from((None, *pools.PORTS)))
            fields = (*((("in_port", port, None),) if port else ()), ("eth_src", _NOBODY, None))
        port = draw(st.sampled_from((*pools.PORTS, of.CONTROLLER)))
        times, priority = (idle, hard, of.SEND_FLOW_REM), model.fresh_priority
        if is_old:
            message = m.FlowMod10(of.ADD, priority, fields, m.output(port), number, *times).encode(model.next_xid())
        else:
            actions = of.apply_actions(of.output(port))
            rule = FlowMod(of.ADD, 0, priority, fields, actions, number, 0, *times).encode(model.next_xid())
            message = DIALECTS[model.sender.version].translated(rule)
        messages.append(message.hex())
    data, port = draw(packet(Model(rules=[first] if first else [])))
    return Timed(tuple(messages), port, data.hex())
