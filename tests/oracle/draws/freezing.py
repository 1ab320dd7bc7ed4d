"""Packets that Open vSwitch freezes: they recirculate or pause.

Open vSwitch 3.1 ends when the action set of a packet that it freezes takes more bytes than the actions that remain
(`recirc_alloc_id__`, ofproto/ofproto-dpif-rid.c; 3.7 has the same assertion). So in some runs packets keep an action
set for later lookups, and freeze only before the first one; in the others, packets freeze anywhere, and no action set
outlives its rule. What a group does freezes, too: it may select a bucket, and rules of any table use it.
"""

import struct

from tests.oracle import openflow as of
from tests.oracle.dialects.messages15 import parts
from tests.oracle.dialects.nicira import VENDOR
from tests.oracle.draws.model import Model

_GOTO, _WRITE_ACTIONS, _APPLY_ACTIONS = 1, 3, 4
_POP_MPLS, _GROUP, _VENDOR_ACTION = 20, 22, 0xFFFF
_RESUBMIT_TABLE, _CONTROLLER2, _NICIRA_GROUP = 14, 37, 40
_PAUSE = struct.pack("!HH4x", 4, 4)
_CT_TABLE, _NO_TABLE = 18, 0xFF


def instructions(model: Model, table: int, drawn: bytes) -> bytes:
    """Leave out what must not be in a rule of a table, or of any (255)."""
    all_parts = list(parts(drawn))
    if model.keeps_sets:
        return b"".join(_applied(model, table, part) if _kind(part) == _APPLY_ACTIONS else part for part in all_parts)
    # A rule behind the first table may return to another one, which has resubmitted the packet.
    if table == 0 and not any(_kind(part) == _GOTO for part in all_parts):
        return drawn
    return b"".join(part for part in all_parts if _kind(part) != _WRITE_ACTIONS)


def _applied(model: Model, table: int, part: bytes) -> bytes:
    return of.apply_actions(actions(model, table, part[8:]))


def actions(model: Model, table: int, drawn: bytes) -> bytes:
    """Leave out actions that must not be applied by a rule of a table, or of any (255); a packet-out's are as of 0."""
    if not model.keeps_sets:
        return drawn
    result, is_first = b"", table == 0
    for part in parts(drawn):
        if is_first or not _freezes(part):
            result += part
        is_first &= _subtype(part) != _RESUBMIT_TABLE
    return result


def _freezes(action: bytes) -> bool:
    match _kind(action), _subtype(action):
        case (_, of.CT):
            return action[_CT_TABLE] != _NO_TABLE
        case (_, subtype) if subtype == _CONTROLLER2:
            return _PAUSE in action
        case (kind, subtype):
            return kind in (_POP_MPLS, _GROUP) or subtype == _NICIRA_GROUP


def _kind(part: bytes) -> int:
    return int.from_bytes(part[:2])


def _subtype(action: bytes) -> int | None:
    """Return the number of an action of Nicira's."""
    is_one = action[:2] == struct.pack("!H", _VENDOR_ACTION) and action[4:8] == struct.pack("!I", VENDOR)
    return int.from_bytes(action[8:10]) if is_one else None
