"""The draws of OpenFlow 1.4 and later: the importance of rules, tables' configurations, and more notifications."""

import struct

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.dialects import DIALECTS
from tests.oracle.dialects.openflow14 import OpenFlow14
from tests.oracle.draws import flows
from tests.oracle.draws.model import Draw, Model

_IN_14 = OpenFlow14()
FIRST = _IN_14.version
"""The first version with what is here."""
_IMPORTANCE = slice(46, 48)
_EVICTION, _VACANCY = 1 << 2, 1 << 3
_EVICTION_PROPERTY, _VACANCY_PROPERTY = 2, 3
_LIMITS = ((0, 0), (20, 80), (80, 20), (20, 101), (99, 99), (99, 100), (100, 100), (100, 100))
# Kinds of messages, to a slave and to a master or an equal: of roles, tables and requests; and all reasons of each.
_NOTIFICATIONS = tuple((kind, every) for kind, every in zip(range(6, 12), (7, 7, 0x18, 0x18, 3, 3), strict=True))
_UNSUPPORTED = ((6, 8), (8, 1), (10, 4), (12, 1), (0xFFFF, 1))
# Features to announce; an unknown property, an experimenter's, and two malformed ones.
_PORT_PROPERTIES = (
    *(struct.pack("!HHI", 0, 8, advertised) for advertised in (0, 0x20, 0x2820)),
    *(struct.pack("!HHI", kind, 8, 0) for kind in (1, 0xFFFF)),
    struct.pack("!HHI4xI", 0xFFFF, 16, 0x2320, 1),
    struct.pack("!HHQ4x", 0, 12, 0),
    struct.pack("!HHI", 0, 24, 0),
)


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule, perhaps an important one."""
    rule = bytearray(_IN_14.translated(flows.add_flow(draw, model)))
    rule[_IMPORTANCE] = struct.pack("!H", draw(st.sampled_from((0, 0, 1, 0xFFFF))))
    return bytes(rule)


def change_table(draw: Draw, model: Model) -> bytes:
    """Draw a TABLE_MOD of the sender's version."""
    config = draw(st.sampled_from((0, _EVICTION, _VACANCY, _VACANCY, _EVICTION | _VACANCY)))
    table = draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES)))
    limits = draw(st.sampled_from(_LIMITS)) if config & _VACANCY and draw(st.booleans()) else None
    said = struct.pack("!HHBB2x", _VACANCY_PROPERTY, 8, *limits) if limits else b""
    if draw(st.integers(0, 3)) == 0:
        said += struct.pack("!HHI", _EVICTION_PROPERTY, 8, draw(st.sampled_from((0, 1, 2, 4, 7))))
    dialect = DIALECTS[model.sender.version]
    return dialect.message(of.TABLE_MOD, model.next_xid(), struct.pack("!B3xI", table, config) + said)


def port_properties(draw: Draw) -> bytes:
    """Draw properties of a port-mod, of which Open vSwitch takes those of Ethernet."""
    return b"".join(draw(st.lists(st.sampled_from(_PORT_PROPERTIES), max_size=2)))


def choose_notifications(draw: Draw, model: Model) -> bytes:
    """Draw a choice of what OpenFlow 1.4 and later tell of roles, tables and others' requests."""
    chosen = draw(st.lists(st.sampled_from(_NOTIFICATIONS), min_size=1, max_size=3))
    if draw(st.integers(0, 9)) == 0:
        chosen.append(draw(st.sampled_from(_UNSUPPORTED)))
    said = b"".join(struct.pack("!HHI", kind, 8, draw(st.sampled_from((0, every, every)))) for kind, every in chosen)
    return DIALECTS[model.sender.version].message(of.SET_ASYNC, model.next_xid(), said)
