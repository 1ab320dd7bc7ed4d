"""The state machine that hypothesis drives: possible next steps, given those drawn before."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.oracle import frames, pools, rules
from tests.oracle import openflow as of
from tests.oracle.openflow import FlowMod, Oxm
from tests.oracle.steps import (
    BreakLink,
    Bulk,
    Check,
    Execute,
    Inject,
    Interface,
    Move,
    PortMod,
    Reconnect,
    RestartOneswitchd,
    RestartSwitch,
    Send,
    Step,
    Timed,
)


@dataclass
class Model:
    """The controller's view, a superset: good enough to draw messages that interact.

    ``stateful``: rules may keep state that all ports share. The executors then stay as they are, and switches are not
    restarted: they would forget. ``gathers``: the ports have several executors until such a rule comes. It could take
    ports away from a link that is cut.
    """

    stateful: bool = False
    gathers: bool = False

    rules: list[FlowMod] = field(default_factory=list)
    groups: dict[int, int] = field(default_factory=dict)
    meters: set[int] = field(default_factory=set)
    recirculates: bool = False
    learns: bool = False
    xid: int = 0
    fresh_priority: int = 1000

    def next_xid(self) -> int:
        self.xid += 1
        return self.xid

    def note(self, actions: bytes) -> bytes:
        """Look for actions that make Open vSwitch parse a packet again, or learn rules."""
        self.learns |= any(action in actions for action in _LEARN)
        self.recirculates |= _POP_MPLS in actions or _CT in actions
        return actions

    def without_overlap(self, table: int, priority: int, fields: tuple[Oxm, ...]) -> int:
        """Return ``priority`` or another one without overlapping rules, whose precedence is undefined."""
        if not any(
            rule.table == table
            and rule.priority == priority
            and set(rule.fields) != set(fields)
            and pools.overlap(rule.fields, fields)
            for rule in self.rules
        ):
            return priority
        self.fresh_priority += 1
        return self.fresh_priority


Draw = st.DrawFn
_NOBODY = 0x0200000000FE
_POP_MPLS = b"\x00\x14\x00\x08"
_CT = struct.pack("!IH", 0x2320, of.CT)
_LEARN = [struct.pack("!IH", 0x2320, subtype) for subtype in of.LEARN_ACTIONS]
# With what rules push, still within the MTU: a dummy device that drops a frame drops the rest of its batch.
_LONGEST = 1480


# ---- messages


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
    instructions = draw(
        rules.instructions(table, fields, tuple(model.groups), tuple(sorted(model.meters)), model.stateful)
    )
    model.note(instructions)
    rule = FlowMod(
        *(of.ADD, table, priority, fields, instructions, draw(st.sampled_from(pools.COOKIES))),
        flags=flags,
        cookie_mask=draw(st.sampled_from((0, 0, 0, 0, 1))),
    )
    model.rules.append(rule)
    return rule.encode(model.next_xid())


def change_flows(draw: Draw, model: Model) -> bytes:
    """Draw a MODIFY or DELETE, strict or not, of a rule that likely exists."""
    command = draw(st.sampled_from((of.MODIFY, of.MODIFY_STRICT, of.DELETE, of.DELETE_STRICT)))
    like = draw(st.sampled_from(model.rules)) if model.rules and draw(st.integers(0, 3)) else None
    fields = like.fields if like else draw(pools.match())
    if command in (of.MODIFY, of.DELETE) and fields and draw(st.booleans()):
        fields = fields[: draw(st.integers(0, len(fields) - 1))]
    fields = tuple(item for item in fields if _prerequisites_met(item, fields))
    table = draw(st.sampled_from((*(like.table if like else 0,) * 8, *pools.TABLES, of.ALL_TABLES)))
    cookie, cookie_mask = _cookie_filter(draw, table, (0, 0, 0, 0, 0, *pools.COOKIE_MASKS))
    filters = {}
    if command in (of.DELETE, of.DELETE_STRICT) and draw(st.integers(0, 2)) == 0:
        filters = draw(_filters())
    instructions = b""
    if command in (of.MODIFY, of.MODIFY_STRICT):
        groups, meters = tuple(model.groups), tuple(sorted(model.meters))
        instructions = draw(rules.instructions(min(table, 3), fields, groups, meters, model.stateful))
        model.note(instructions)
    return FlowMod(
        *(command, table, like.priority if like else draw(st.sampled_from(pools.PRIORITIES)), fields, instructions),
        *(cookie, cookie_mask),
        flags=draw(st.sampled_from((0, 0, of.RESET_COUNTS, of.SEND_FLOW_REM, of.CHECK_OVERLAP))),
        **filters,
    ).encode(model.next_xid())


def _cookie_filter(draw: Draw, table: int, masks: tuple[int, ...]) -> tuple[int, int]:
    """Draw a cookie and its mask. Known difference: Open vSwitch has hidden rules with cookie 0 in all tables."""
    cookie, mask = draw(st.sampled_from(pools.COOKIES)), draw(st.sampled_from(masks))
    return (cookie or 1 if (table, mask) == (of.ALL_TABLES, of.MASK64) else cookie), mask


def _prerequisites_met(item: Oxm, fields: tuple[Oxm, ...]) -> bool:
    """Tell whether a shortened match keeps its prerequisites."""
    needs = {"vlan_pcp": "vlan_vid"}.get(item[0])
    return needs is None or any(name == needs for name, _, _ in fields)


@st.composite
def _filters(draw: Draw) -> dict[str, int]:
    result = {}
    if draw(st.booleans()):
        result["out_port"] = draw(st.sampled_from((*pools.PORTS, of.CONTROLLER, of.IN_PORT, of.FLOOD, of.ALL, 7, 0)))
    if draw(st.booleans()):
        result["out_group"] = draw(st.sampled_from((*pools.GROUPS, 9)))
    return result


def change_groups(draw: Draw, model: Model) -> bytes:
    """Draw an ADD, MODIFY or DELETE of a group; chains lead to lower numbers, which excludes loops."""
    group = draw(st.sampled_from(pools.GROUPS))
    usual = of.MODIFY if group in model.groups else of.ADD
    command = draw(st.sampled_from((usual, usual, usual, 0, 1, 2)))
    if command == 2:
        if draw(st.integers(0, 3)) == 0:
            group = draw(st.sampled_from((9, of.GROUP_ALL, of.ANY, 0xFFFFFD00)))
        model.groups.pop(group, None)
        if group == of.GROUP_ALL:
            model.groups.clear()
        return of.group_mod(model.next_xid(), 2, draw(st.sampled_from((0, 3))), group)
    kind = draw(st.sampled_from((0, 0, of.SELECT_GROUP, 2, 2, of.FAST_FAILOVER)))
    if draw(st.integers(0, 29)) == 0:
        kind, group = draw(st.sampled_from(((4, group), (0, of.GROUP_ALL), (0, of.ANY), (0, 0xFFFFFF00))))
    chain = tuple(each for each in model.groups if each < group)
    if kind <= of.FAST_FAILOVER and group <= max(pools.GROUPS):
        model.groups.setdefault(group, kind)
    model.recirculates |= kind == of.SELECT_GROUP
    return of.group_mod(
        model.next_xid(), command, kind, group, model.note(draw(rules.buckets(kind, chain, model.stateful)))
    )


def change_meters(draw: Draw, model: Model) -> bytes:
    """Draw an ADD, MODIFY or DELETE of a meter."""
    number = draw(st.sampled_from(pools.METERS))
    usual = of.MODIFY if number in model.meters else of.ADD
    command = draw(st.sampled_from((usual, usual, usual, 0, 1, 2)))
    if draw(st.integers(0, 14)) == 0:
        number = draw(st.sampled_from((0, 9, of.METER_ALL, 0xFFFFFFFD, 0xFFFF0001)))
    flags = draw(st.sampled_from((1, 1, 2, 4 | 1, 8 | 2, 0, 3)))
    if command == 2:
        model.meters.discard(number)
        if number == of.METER_ALL:
            model.meters.clear()
        return of.meter_mod(model.next_xid(), 2, flags, number)
    if number in pools.METERS:
        model.meters.add(number)
    return of.meter_mod(model.next_xid(), command, flags, number, draw(rules.bands()))


def packet_out(draw: Draw, model: Model) -> bytes:
    """Draw a packet-out."""
    actions = model.note(draw(rules.actions(groups=tuple(model.groups), stateful=model.stateful)))
    # Known difference: packet-outs of virtual ports that Open vSwitch recirculates.
    ports = (of.CONTROLLER,) if model.recirculates else (*pools.PORTS, *pools.PORTS, of.CONTROLLER, of.LOCAL, of.FLOOD)
    in_port = draw(st.sampled_from((*ports, of.ANY, 7, 0, of.IN_PORT)))
    if draw(st.integers(0, 2)) == 0:
        actions += of.output(of.TABLE)
    data, _ = draw(packet(model))
    buffer = draw(st.sampled_from((of.NO_BUFFER,) * 19 + (5,)))
    return of.packet_out(model.next_xid(), in_port, actions, data, buffer)


def request(draw: Draw, model: Model) -> bytes:
    """Draw a request for statistics or configuration."""
    xid = model.next_xid()
    kind = draw(st.integers(0, 11))
    if kind <= 3:
        like = draw(st.sampled_from(model.rules)) if model.rules and draw(st.booleans()) else None
        fields = like.fields if like else draw(pools.match())
        table = draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES, 9)))
        cookie, cookie_mask = _cookie_filter(draw, table, pools.COOKIE_MASKS)
        return of.flow_request(
            xid,
            draw(st.sampled_from((of.FLOW, of.AGGREGATE))),
            table=table,
            fields=fields if draw(st.booleans()) else (),
            cookie=cookie,
            cookie_mask=cookie_mask,
            **draw(_filters()),
        )
    if kind == 4:
        port = draw(st.sampled_from((*pools.PORTS, of.ANY, 7, 0, of.CONTROLLER, of.FLOOD)))
        return of.multipart(xid, of.PORT_STATS, struct.pack("!I4x", port))
    if kind == 5:
        group = draw(st.sampled_from((*pools.GROUPS, of.GROUP_ALL, 9, of.ANY)))
        return of.multipart(xid, of.GROUP, struct.pack("!I4x", group))
    if kind == 6:
        meter = draw(st.sampled_from((*pools.METERS, of.METER_ALL, 9, 0)))
        return of.multipart(xid, draw(st.sampled_from((of.METER, of.METER_CONFIG))), struct.pack("!I4x", meter))
    simple = (of.TABLES, of.GROUP_DESC, of.GROUP_FEATURES, of.METER_FEATURES, of.PORT_DESC, 14, 0xFFFF)
    if kind == 7:
        return of.multipart(xid, draw(st.sampled_from(simple)))
    if kind == 8:
        port = draw(st.sampled_from((*pools.PORTS, 7)))
        return of.multipart(xid, of.QUEUE, struct.pack("!II", port, draw(st.sampled_from((0, of.ANY)))))
    if kind == 9:
        return of.message(of.ECHO_REQUEST, xid, draw(st.sampled_from((b"", b"ping"))))
    others = (of.FEATURES_REQUEST, of.GET_CONFIG_REQUEST, of.GET_ASYNC_REQUEST, of.BARRIER_REQUEST)
    data = draw(st.sampled_from((b"", b"", b"ping")))
    return of.message(draw(st.sampled_from((*others, of.PACKET_IN, of.BARRIER_REPLY, 30, 99))), xid, data)


def change_switch(draw: Draw, model: Model) -> bytes:
    """Draw a SET_CONFIG or TABLE_MOD."""
    if draw(st.integers(0, 3)) == 0:
        table = draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES, 254)))
        return of.table_mod(model.next_xid(), table, draw(st.sampled_from((0, 3))))
    return of.set_config(model.next_xid(), draw(st.sampled_from((0, 0, 1, 2, 3))), draw(st.sampled_from((0xFFFF, 128))))


def change_treatment(draw: Draw, model: Model, *, roles: bool) -> bytes:
    """Draw a role or an asynchronous configuration. The first controller is never a slave."""
    if roles and draw(st.booleans()):
        role = draw(
            st.sampled_from((of.ROLE_NO_CHANGE, of.ROLE_EQUAL, of.ROLE_MASTER, of.ROLE_SLAVE, of.ROLE_SLAVE, 4))
        )
        return of.role_request(model.next_xid(), role, draw(st.sampled_from((0, 1, 2, of.MASK64))))
    masks = draw(st.lists(st.sampled_from((0, 1, 2, 3, 7, 15)), min_size=6, max_size=6))
    return of.set_async(model.next_xid(), masks)


def timed(draw: Draw, model: Model) -> Step:
    """Draw rules with timeouts; the model omits them, as no other step touches them."""
    messages, first = [], None
    for number in range(draw(st.integers(1, 4))):
        fields = draw(pools.match())
        first = first or FlowMod(fields=fields)
        model.fresh_priority += 1
        idle, hard = draw(st.sampled_from(((1, 0), (1, 0), (0, 2))))
        if hard:
            # No packet: the count before it ends is unpredictable.
            port = draw(st.sampled_from((None, *pools.PORTS)))
            fields = (*((("in_port", port, None),) if port else ()), ("eth_src", _NOBODY, None))
        actions = of.output(draw(st.sampled_from((*pools.PORTS, of.CONTROLLER))))
        rule = FlowMod(
            *(of.ADD, 0, model.fresh_priority, fields, of.apply_actions(actions), number),
            *(0, idle, hard, of.SEND_FLOW_REM),
        )
        messages.append(rule.encode(model.next_xid()).hex())
    data, port = draw(packet(Model(rules=[first] if first else [])))
    return Timed(tuple(messages), port, data.hex())


def bundle(draw: Draw, model: Model) -> list[bytes]:
    """Draw a bundle, mostly one that is committed."""
    number, flags = draw(st.integers(1, 2)), draw(st.sampled_from((3, 3, 3, 0, of.BUNDLE_ATOMIC, of.BUNDLE_ORDERED)))
    parts: list[bytes] = []
    # Open vSwitch 3.1 may not find rules with new masks before the commit (pvector_insert()): additions are last.
    for maker in sorted(draw(st.lists(st.sampled_from(_BUNDLED), max_size=6)), key=_BUNDLED.index):
        part = maker(draw, model)
        if maker is add_flow and part[45] & of.CHECK_OVERLAP:
            continue
        parts.append(part)
        # Open vSwitch 3.1 crashes when a later failure makes it take the deletion of a used group back.
        if parts[-1][1] == of.GROUP_MOD and parts[-1][9] == of.DELETE_GROUP:
            break
    ends = draw(
        st.sampled_from((*((of.BUNDLE_CLOSE, of.BUNDLE_COMMIT),) * 8, (of.BUNDLE_COMMIT,), (of.BUNDLE_DISCARD,)))
    )
    controls = [of.bundle_control(model.next_xid(), number, what, flags) for what in (of.BUNDLE_OPEN, *ends)]
    return [controls[0], *(of.bundle_add(part, number, flags) for part in parts), *controls[1:]]


# ---- packets


@st.composite
def packet(draw: Draw, model: Model) -> tuple[bytes, int]:
    """Draw a frame and its port: one that an installed rule matches, or any."""
    values: dict[str, int] = {}
    if model.rules and draw(st.integers(0, 4)):
        for name, value, mask in draw(st.sampled_from(model.rules)).fields:
            free = draw(st.sampled_from(pools.VALUES[name])) if mask is not None and name in pools.VALUES else 0
            values[name] = value if mask is None else value & mask | free & ~mask
    for name in draw(st.lists(st.sampled_from(sorted(pools.VALUES)), max_size=3)):
        values.setdefault(name, draw(st.sampled_from(pools.VALUES[name])))
    port = values.get("in_port", 0)
    port = port if port in pools.PORTS else draw(st.sampled_from(pools.PORTS))
    if "eth_type" not in values:
        values["eth_type"] = draw(st.sampled_from((frames.IPV4, frames.IPV4, *pools.VALUES["eth_type"])))
    values["length"] = draw(st.sampled_from((60, 60, 60, 61, 128, _LONGEST)))
    frag = values.get("ip_frag", 0)
    values["fragment"] = {0: 0, 1: 0x2000, 3: 0x00B9}.get(frag & 3, 0)
    return frames.frame(values, _tags(draw, values), _labels(draw, values)), port


def _tags(draw: Draw, values: dict[str, int]) -> list[tuple[int, int]]:
    tags = []
    vid = values.get("vlan_vid")
    if vid is None:
        vid = draw(st.sampled_from((0, 0, 0, 0x1000 | 10)))
    if vid & 0x1000:
        tci = values.get("vlan_pcp", 0) << 13 | vid & 0xFFF
        tags.append((draw(st.sampled_from((frames.VLAN, frames.VLAN, frames.QINQ))), tci))
        if draw(st.integers(0, 2)) == 0:
            tags.append((frames.VLAN, 30))
    return tags


def _labels(draw: Draw, values: dict[str, int]) -> list[int]:
    if values["eth_type"] != frames.MPLS:
        return []
    label = values.get("mpls_label", 16) << 12 | values.get("mpls_tc", 0) << 9 | draw(st.sampled_from((0, 1, 2, 64)))
    return [label] if values.get("mpls_bos", 1) else [label, 18 << 12 | 64]


# ---- steps


_MESSAGES: tuple[Callable[[Draw, Model], bytes], ...] = (
    *(add_flow,) * 10,
    *(change_flows, change_flows, change_flows, change_flows, change_groups, change_groups, change_groups),
    *(change_meters, change_meters, change_switch),
)


_BUNDLED = (packet_out, change_flows, change_flows, change_groups, change_groups, *(add_flow,) * 5)


@st.composite
def step(draw: Draw, model: Model) -> Step:
    """Draw the next step."""
    kind = draw(st.integers(0, 94))
    if kind < 28:
        count = draw(st.integers(1, 4))
        makers = [draw(st.sampled_from(_MESSAGES)) for _ in range(count)]
        messages = [maker(draw, model).hex() for maker in makers]
        if draw(st.integers(0, 3)) == 0:
            among = draw(st.sampled_from((of.BARRIER_REQUEST, of.BARRIER_REQUEST, of.GET_CONFIG_REQUEST, 99)))
            messages.insert(draw(st.integers(0, count)), of.message(among, model.next_xid()).hex())
        # Open vSwitch accepts SET_CONFIG from a slave on a management connection, as these are.
        controller = 0 if change_switch in makers else _controller(draw)
        return Send(tuple(messages), " ".join(maker.__name__ for maker in makers), controller)
    if kind < 60:
        data, port = draw(packet(model))
        # A cached flow acts a moment longer than the rules that the first frame makes Open vSwitch learn.
        return Inject(port, (data.hex(),) * draw(st.sampled_from((1, 1, 1, 1 if model.learns else 2))))
    if kind < 64:
        return Send((packet_out(draw, model).hex(),), "packet_out", _controller(draw))
    if kind < 68:
        return Send((request(draw, model).hex(),), "request", _controller(draw))
    if kind < 70:
        bits = (0, 1, 4, 32, 64, 0x65, 2)
        port = draw(st.sampled_from((*pools.PORTS, *pools.PORTS, 7, 0)))
        config, mask = draw(st.sampled_from(bits)), draw(st.sampled_from(bits))
        return PortMod(port, config, mask, draw(st.integers(0, 9)) > 0, model.next_xid())
    if kind < 76:
        move = Move if model.stateful else draw(st.sampled_from((Move, Move, Execute)))
        port = draw(st.sampled_from((0, *pools.PORTS) if move is Move else pools.PORTS))
        return move(port, draw(st.integers(0, 2)))
    if kind < 80:
        controller = draw(st.sampled_from((0, 1, 1, 2)))
        message = change_treatment(draw, model, roles=controller != 0)
        return Send((message.hex(),), "change_treatment", controller)
    if kind < 82:
        return Interface(draw(st.sampled_from(pools.PORTS)), draw(st.booleans()))
    if kind < 84:
        most = 0 if model.gathers else 3
        messages = [maker(draw, model).hex() for maker in draw(st.lists(st.sampled_from(_MESSAGES), max_size=most))]
        return BreakLink(draw(st.integers(0, 1)), tuple(messages))
    if kind >= 87:
        return Send(tuple(message.hex() for message in bundle(draw, model)), "bundle", _controller(draw))
    return draw(_rare(model)) if kind < 85 else Check()


def _controller(draw: Draw) -> int:
    return draw(st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2)))


@st.composite
def _rare(draw: Draw, model: Model) -> Step:
    """Draw a slow step."""
    kind = draw(st.integers(0, 9))
    if kind < 4:
        return Reconnect()
    if kind < 6:
        return RestartOneswitchd()
    if kind < 7 and not model.stateful:
        return RestartSwitch(draw(st.integers(0, 2)))
    if kind < 8:
        return timed(draw, model)
    return Bulk(draw(st.sampled_from((20, 30))), 250)
