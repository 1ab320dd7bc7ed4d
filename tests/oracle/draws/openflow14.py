"""What only OpenFlow 1.4 and later say: the importance of rules, eviction, and limits of tables' vacancy."""

import struct

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.dialects.openflow14 import OpenFlow14
from tests.oracle.draws import flows
from tests.oracle.draws.model import Draw, Model

_IN_14 = OpenFlow14()
_IMPORTANCE = slice(46, 48)
_EVICTION, _VACANCY = 1 << 2, 1 << 3
_VACANCY_PROPERTY = 3
# Known difference: events about vacancy, if the limits are near 100 %.
_LIMITS = ((0, 0), (10, 20), (20, 80), (80, 20), (20, 101))


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule, perhaps an important one."""
    rule = bytearray(_IN_14.translated(flows.add_flow(draw, model)))
    rule[_IMPORTANCE] = struct.pack("!H", draw(st.sampled_from((0, 0, 1, 0xFFFF))))
    return bytes(rule)


def change_table(draw: Draw, model: Model) -> bytes:
    """Draw a TABLE_MOD."""
    config = draw(st.sampled_from((0, _EVICTION, _VACANCY, _VACANCY, _EVICTION | _VACANCY)))
    table = draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES)))
    limits = draw(st.sampled_from(_LIMITS)) if config & _VACANCY and draw(st.booleans()) else None
    said = struct.pack("!HHBB2x", _VACANCY_PROPERTY, 8, *limits) if limits else b""
    return _IN_14.message(of.TABLE_MOD, model.next_xid(), struct.pack("!B3xI", table, config) + said)
