"""Flow monitors: in Nicira's extension over OpenFlow 1.0, in ONF's over 1.3, and as OpenFlow 1.4 has them."""

import dataclasses

from hypothesis import strategies as st

from tests.oracle import monitors, pools
from tests.oracle import openflow as of
from tests.oracle.draws.model import Draw, Model
from tests.oracle.monitors import ACTIONS, ADD, ALL, CHANGES, DELETE, INITIAL, MODIFY, OWN, Monitor

_NUMBERS = (1, 2, 0xFFFFFFFF)
_FLAGS = (ALL, ALL, ALL & ~OWN, ALL & ~OWN, ALL & ~ACTIONS, INITIAL | ADD, ADD | MODIFY | OWN, DELETE | OWN, CHANGES)
_WITH_GROUPS = 5
"""The first version with monitors of groups, and of other commands than to add one."""


def message(draw: Draw, model: Model) -> bytes:
    """Draw a request for monitors, or the end of one.

    Known difference: errors about the entries of a request name other bytes, so none of these is refused.
    """
    sender, xid = model.sender, model.next_xid()
    free = [number for number in _NUMBERS if number not in sender.monitors]
    if sender.monitors and (not free or draw(st.integers(0, 2)) == 0):
        number = draw(st.sampled_from(sender.monitors))
        if sender.version >= _WITH_GROUPS and draw(st.booleans()):
            changed = dataclasses.replace(_monitor(draw, model), number=number)
            return monitors.of_entries(sender.version, changed.entry(sender.version, "modify"), xid)
        sender.monitors.remove(number)
        return monitors.cancel(sender.version, number, xid)
    if sender.version < _WITH_GROUPS and draw(st.integers(0, 9)) == 0:
        return monitors.cancel(sender.version, free[0], xid)
    made = free[: draw(st.sampled_from((1, 1, 2)))]
    sender.monitors += made
    wanted = (dataclasses.replace(_monitor(draw, model), number=number) for number in made)
    return monitors.request(sender.version, *wanted, xid=xid)


def _monitor(draw: Draw, model: Model) -> Monitor:
    """Draw a monitor, of all rules or of some."""
    wanted = Monitor(flags=draw(st.sampled_from(_FLAGS)))
    match draw(st.sampled_from(("", "", "", "port", "group", "table", "match"))):
        case "port":
            return dataclasses.replace(wanted, out_port=draw(st.sampled_from((*pools.PORTS, of.CONTROLLER, of.FLOOD))))
        case "group" if model.sender.version >= _WITH_GROUPS:
            return dataclasses.replace(wanted, out_group=draw(st.sampled_from(pools.GROUPS)))
        case "table":
            return dataclasses.replace(wanted, table=draw(st.sampled_from(pools.TABLES)))
        case "match":
            in_port = (("in_port", draw(st.sampled_from(pools.PORTS)), None),)
            fields = in_port if model.sender.version == 1 else pools.fulfilled(draw(pools.match()))
            return dataclasses.replace(wanted, fields=fields)
        case _:
            return wanted
