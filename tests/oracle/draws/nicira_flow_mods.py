"""Nicira's flow-mods over OpenFlow 1.3 and 1.4: those of 1.3 with a match in NXM and a cookie to change."""

import struct

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle.dialects import nicira
from tests.oracle.draws import flows
from tests.oracle.draws.model import Draw, Model

_COOKIE = 0x0001_3C00
"""Of NXM: the cookie of a rule, with the width of its value."""
_KEEP = (1 << 64) - 1
_GOTO_TABLE = 1


def _in_nicira_form(message: bytes, new_cookie: int, *, by_cookie: bool) -> bytes:
    """Return a flow-mod of OpenFlow 1.3 as one of Nicira's, which cannot name a group that rules output to."""
    cookie, mask, table, command, idle, hard, priority = struct.unpack_from("!QQBBHHH", message, 8)
    buffer, out_port, _, flags, _, length = struct.unpack_from("!IIIHxxHH", message, 32)
    fields = message[52 : 48 + length]
    behind = message[48 + length + -length % 8 :]
    if table == of.ALL_TABLES and _goes_to_a_table(behind):
        table = 0  # It may loop.
    if by_cookie:
        fields += struct.pack("!IQQ", _COOKIE | 1 << 8 | 16, cookie & mask, mask)
    head = struct.pack("!QBBHHHI", new_cookie, table, command, idle, hard, priority, buffer)
    head += struct.pack("!HHH6x", out_port & 0xFFFF, flags, len(fields))
    return nicira.message(4, int.from_bytes(message[4:8]), nicira.FLOW_MOD, head + of.padded(fields) + behind)


def _goes_to_a_table(instructions: bytes) -> bool:
    while instructions:
        kind, length = struct.unpack_from("!HH", instructions)
        if kind == _GOTO_TABLE:
            return True
        instructions = instructions[length:]
    return False


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule."""
    message = flows.add_flow(draw, model)
    return _in_nicira_form(message, int.from_bytes(message[8:16]), by_cookie=False)


def change_flows(draw: Draw, model: Model) -> bytes:
    """Draw a MODIFY or DELETE; without a cookie to change, a MODIFY adds no rule."""
    message = flows.change_flows(draw, model)
    by_cookie = message[16:24] != bytes(8)
    cookies = (_KEEP, _KEEP, 1, 2) if by_cookie else (_KEEP,)
    return _in_nicira_form(message, draw(st.sampled_from(cookies)), by_cookie=by_cookie)


def change_or_add(draw: Draw, model: Model) -> bytes:
    """Draw a MODIFY or DELETE; a MODIFY may add a rule, which Open vSwitch may not find later in the same bundle."""
    message = flows.change_flows(draw, model, adds=True)
    by_cookie = message[16:24] != bytes(8)
    return _in_nicira_form(message, draw(st.sampled_from((_KEEP, 1, 2))), by_cookie=by_cookie)
