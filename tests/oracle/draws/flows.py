"""Flow-mods and requests for flow statistics of OpenFlow 1.3."""

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools, rules
from tests.oracle.draws import freezing
from tests.oracle.draws.model import Draw, Model
from tests.oracle.openflow import FlowMod, Oxm


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule, mostly a valid one."""
    known = model.rules and draw(st.integers(0, 5)) == 0
    like = draw(st.sampled_from(model.rules)) if known else None
    broken = like is None and draw(st.integers(0, 24)) == 0
    fields = like.fields if like else draw(pools.broken_match() if broken else pools.match())
    table = like.table if like else draw(st.sampled_from((0, 0, 0, *pools.TABLES)))
    priority = like.priority if like else draw(st.sampled_from(pools.PRIORITIES))
    flags = draw(st.sampled_from((0, 0, of.SEND_FLOW_REM, of.RESET_COUNTS, of.CHECK_OVERLAP, 1 | 4, 1 | 8 | 16)))
    if not flags & of.CHECK_OVERLAP:
        priority = model.without_overlap(table, priority, fields)
    instructions = _instructions(draw, model, table, fields)
    rule = FlowMod(
        *(of.ADD, table, priority, fields, instructions, draw(st.sampled_from(pools.COOKIES))),
        flags=flags,
        cookie_mask=draw(st.sampled_from((0, 0, 0, 0, 1))),
    )
    model.rules.append(rule)
    return rule.encode(model.next_xid())


def _instructions(draw: Draw, model: Model, table: int, fields: tuple[Oxm, ...]) -> bytes:
    groups, meters = tuple(model.groups), tuple(sorted(model.meters))
    drawn = draw(rules.instructions(min(table, 3), fields, groups, meters, model.stateful))
    return model.note(freezing.instructions(model, table, drawn))


def change_flows(draw: Draw, model: Model, *, adds: bool = False) -> bytes:
    """Draw a MODIFY or DELETE, strict or not, of a rule that likely exists; ``adds``: a MODIFY may add one."""
    command = draw(st.sampled_from((of.MODIFY, of.MODIFY_STRICT, of.DELETE, of.DELETE_STRICT)))
    like = draw(st.sampled_from(model.rules)) if model.rules and draw(st.integers(0, 3)) else None
    fields = like.fields if like else draw(pools.match())
    if command in (of.MODIFY, of.DELETE) and fields and draw(st.booleans()):
        fields = fields[: draw(st.integers(0, len(fields) - 1))]
    fields = tuple(item for item in fields if _prerequisites_met(item, fields))
    table = draw(st.sampled_from((*(like.table if like else 0,) * 8, *pools.TABLES, of.ALL_TABLES)))
    cookie, cookie_mask = cookie_filter(draw, table, (0, 0, 0, 0, 0, *pools.COOKIE_MASKS))
    chosen: dict[str, int] = {}
    if command in (of.DELETE, of.DELETE_STRICT) and draw(st.integers(0, 2)) == 0:
        chosen = draw(filters())
    instructions = b""
    priority = like.priority if like else draw(st.sampled_from(pools.PRIORITIES))
    if command in (of.MODIFY, of.MODIFY_STRICT):
        instructions = _instructions(draw, model, table, fields)
        if adds:
            added_to = 0 if table == of.ALL_TABLES else table
            priority = model.without_overlap(added_to, priority, fields)
            model.rules.append(FlowMod(of.ADD, added_to, priority, fields))
    return FlowMod(
        *(command, table, priority, fields, instructions),
        *(cookie, cookie_mask),
        flags=draw(st.sampled_from((0, 0, of.RESET_COUNTS, of.SEND_FLOW_REM, of.CHECK_OVERLAP))),
        **chosen,
    ).encode(model.next_xid())


def cookie_filter(draw: Draw, table: int, masks: tuple[int, ...]) -> tuple[int, int]:
    """Draw a cookie and its mask. Known difference: Open vSwitch has hidden rules with cookie 0 in all tables."""
    cookie, mask = draw(st.sampled_from(pools.COOKIES)), draw(st.sampled_from(masks))
    return (cookie or 1 if (table, mask) == (of.ALL_TABLES, of.MASK64) else cookie), mask


def _prerequisites_met(item: Oxm, fields: tuple[Oxm, ...]) -> bool:
    """Tell whether a shortened match keeps its prerequisites."""
    needs = {"vlan_pcp": "vlan_vid"}.get(item[0])
    return needs is None or any(name == needs for name, _, _ in fields)


@st.composite
def filters(draw: Draw) -> dict[str, int]:
    result = {}
    if draw(st.booleans()):
        result["out_port"] = draw(st.sampled_from((*pools.PORTS, of.CONTROLLER, of.IN_PORT, of.FLOOD, of.ALL, 7, 0)))
    if draw(st.booleans()):
        result["out_group"] = draw(st.sampled_from((*pools.GROUPS, 9)))
    return result
