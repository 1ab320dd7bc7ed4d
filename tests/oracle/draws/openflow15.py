"""Messages of OpenFlow 1.5: those of 1.3 in its form, with what only 1.5 has.

Known differences: deletions of meters that rules have behind other actions, set_field of scattered
bits, of more than 64 bits but not all, or of bits of a packet's field where controllers of 1.0 read it.
"""

import struct

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools, rules
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects.openflow14 import TABLE_DESC
from tests.oracle.dialects.openflow15 import OpenFlow15
from tests.oracle.draws import flows, groups, packets, requests
from tests.oracle.draws.groups import BucketActions
from tests.oracle.draws.model import Draw, Maker, Model

_DIALECT = OpenFlow15()
_SETS = (
    ("reg0", 1, 1),
    ("reg0", 2, 3),
    ("reg0", 0xA0, 0xF0),
    ("metadata", 2, 3),
    ("metadata", 1 << 40, 0xFF << 40),
    ("eth_dst", 0x020000000000, 0xFFFFFFFFFF00),
    ("eth_src", 0x3, 0xF),
    ("tunnel_id", 1, 1),
)
_COPIES = (
    m.copy_field(48, m.header("eth_src"), m.header("eth_dst")),
    m.copy_field(8, m.header("eth_dst"), m.header("reg0")),
    m.copy_field(2, m.header("metadata"), m.header("reg0"), (0, 1)),
    m.copy_field(4, m.header("reg0"), m.header("metadata"), (4, 0)),
    m.copy_field(8, m.header("reg0"), m.header("eth_src"), (0, 40)),
    m.copy_field(64, m.header("metadata"), m.header("tunnel_id")),
)
_ODD = (
    m.copy_field(33, m.header("reg0"), m.header("metadata")),
    m.copy_field(8, m.header("reg0"), m.header("in_port"), (0, 30)),
    m.copy_field(16, m.header("tcp_src"), m.header("tcp_dst")),
    of.set_field(("vlan_vid", 5, 0xF)),
    of.set_field(("ipv4_dst", 0x0B000000, 0x0A000000)),
    m.meter(9),
    struct.pack("!HH4x", 30, 8),
)
_SELECTIONS = (
    *(b"", b"", m.selection(b"hash"), m.selection(b"dp_hash")),
    *(m.selection(b"hash", of.oxm((name, (1 << 32) - 1, None))) for name in ("ipv4_dst", "ipv4_src")),
)
"""Ways to select buckets."""
_IPV4 = b"\x08\0"
_WITHOUT_HEADER = struct.pack("!HBBHH", 0x8000, 44 << 1, 4, 1, 0x0800)
"""The type of a packet that begins with its IPv4 header."""
# Fields that a packet-out has beside its port.
_BESIDE = (
    ("metadata", 1, None),
    ("metadata", 2, 3),
    ("reg0", 1, None),
    ("tunnel_id", 1, None),
    ("eth_dst", 0x020000000001, None),
)


def _own(draw: Draw, model: Model, *, odd: bool = True) -> bytes:
    """Draw actions that only this version has; `odd` ones among them, which switches refuse."""
    found = b""
    for kind in draw(st.lists(st.integers(0, 22), max_size=2)):
        if kind == 0 and odd:
            found += draw(st.sampled_from(_ODD))
            # Which of two errors is told depends on the order of checks.
            odd = False
        elif kind > 20 and model.meters:
            model.keeps_meters = True
            done = m.meter(draw(st.sampled_from(sorted(model.meters))))
            found += draw(st.sampled_from((done, done, _clone(done + of.output(draw(st.sampled_from(pools.PORTS)))))))
        else:
            found += of.set_field(draw(st.sampled_from(_SETS))) if kind <= 11 else draw(st.sampled_from(_COPIES))
    return found


def _clone(done: bytes) -> bytes:
    return struct.pack("!HHIH6x", 0xFFFF, 16 + len(done), 0x2320, 42) + done


def _flow_mod(maker: Maker, draw: Draw, model: Model) -> bytes:
    message = maker(draw, model)
    importance = draw(st.sampled_from((0, 0, 0, 7)))
    masks = not model.is_spoken(1)
    # Which of two errors is told depends on the order of checks.
    odd = of.output(of.ANY)[:8] not in message
    body = m.flow_mod(message[8:], _own(draw, model, odd=odd), importance, masks=masks)
    return _DIALECT.message(of.FLOW_MOD, int.from_bytes(message[4:8]), body)


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule, mostly a valid one."""
    return _flow_mod(flows.add_flow, draw, model)


def change_flows(draw: Draw, model: Model) -> bytes:
    """Draw a MODIFY or DELETE, strict or not, of a rule that likely exists."""
    return _flow_mod(flows.change_flows, draw, model)


# ---- groups


def _numbers(draw: Draw) -> list[int]:
    """Draw numbers of buckets, mostly different ones that exist."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.lists(st.sampled_from((0, 1, 2, 0xFFFFFF01, m.LAST_BUCKET)), min_size=4, max_size=4))
    return list(draw(st.permutations(pools.BUCKETS)))


def change_groups(draw: Draw, model: Model) -> bytes:
    """Draw a change of a group, or of its buckets."""
    return _DIALECT.message(of.GROUP_MOD, *group_mod(draw, model))


def group_mod(draw: Draw, model: Model, own: BucketActions | None = None) -> tuple[int, bytes]:
    """Draw the number and the body of a group-mod; ``own``: actions of its buckets in another version."""
    if model.groups and draw(st.integers(0, 4)) < 2:
        return model.next_xid(), _change_buckets(draw, model, own)
    message = groups.change_groups(draw, model, own)
    command, kind = int.from_bytes(message[8:10]), message[10]
    chosen = draw(st.sampled_from(_SELECTIONS)) if kind == of.SELECT_GROUP and command < of.DELETE_GROUP else b""
    body = m.numbered(message[8:], _numbers(draw), chosen, bytes if own else lambda data: _in_bucket(model, data))
    return int.from_bytes(message[4:8]), body


def _change_buckets(draw: Draw, model: Model, own: BucketActions | None) -> bytes:
    """Draw buckets that come or go, of any kind."""
    group = draw(st.sampled_from((*model.groups, *model.groups, 9)))
    kind = draw(st.sampled_from((0, 0, of.SELECT_GROUP, 2, of.FAST_FAILOVER))) if draw(st.integers(0, 19)) else 4
    places = *pools.BUCKETS, m.FIRST_BUCKET, m.LAST_BUCKET, m.LAST_BUCKET, m.ALL_BUCKETS, 0xFFFFFF01
    place = draw(st.sampled_from(places))
    command = draw(st.sampled_from((m.INSERT_BUCKET, m.INSERT_BUCKET, m.REMOVE_BUCKET)))
    inserted: list[bytes] = []
    if command == m.INSERT_BUCKET and group in model.kinds:
        most = 1 if kind == 2 else 2
        numbers = _numbers(draw)[: draw(st.integers(0, most))]
        inserted = [_bucket(draw, model, group, kind, number, own) for number in numbers]
    if not inserted and place == m.LAST_BUCKET and command == m.INSERT_BUCKET:
        place = m.FIRST_BUCKET  # Open vSwitch 3.1 would splice a list into itself (copy_buckets_for_insert_bucket())
    return m.group_mod(command, kind, *inserted, group=group, place=place)


def _bucket(draw: Draw, model: Model, group: int, kind: int, number: int, own: BucketActions | None) -> bytes:
    """Draw a bucket for a group that earlier messages have made, with a weight or a watch that may not fit it.

    No action is odd: whether the error is about it or about the group depends on the order of checks.
    """
    chain = tuple(each for each in model.groups if each < group)
    weight = draw(st.sampled_from((0, 0, 1, 2)))
    watched = of.ANY
    if kind in (of.SELECT_GROUP, of.FAST_FAILOVER) and draw(st.integers(0, 3)):
        watched = draw(st.sampled_from((*pools.PORTS, *pools.UNKNOWN_PORTS)))
    if own:
        done = model.note(draw(own(chain, odd=False)))
    else:
        usual = rules.actions((), most=2, groups=chain, odd=False, table=max(pools.TABLES), stateful=model.stateful)
        done = _in_bucket(model, _own(draw, model, odd=False) + model.note(draw(usual)))
    return m.bucket(number, done, m.watching(kind, weight, watched, of.ANY))


def _in_bucket(model: Model, data: bytes) -> bytes:
    """Translate a bucket's actions to this version; without masks if a controller may read them over OpenFlow 1.0."""
    translated = m.actions(data)
    return m.without_masks(translated) if model.is_spoken(1) else translated


# ---- other messages


def packet_out(draw: Draw, model: Model) -> bytes:
    """Draw a packet-out, perhaps of a packet without its Ethernet header."""
    return _packet_out(draw, model, is_whole=draw(st.integers(0, 3)) > 0)


def _bundled_packet_out(draw: Draw, model: Model) -> bytes:
    """Draw a packet-out for a bundle. Known difference: errors about those without an Ethernet header."""
    return _packet_out(draw, model, is_whole=True)


def _packet_out(draw: Draw, model: Model, *, is_whole: bool) -> bytes:
    """Draw a packet-out, with fields of the packet before or behind its port."""
    message = packets.packet_out(draw, model)
    sides = [draw(st.lists(st.sampled_from(_BESIDE), max_size=1)) for _ in range(2)]
    before, after = (b"".join(map(of.oxm, side)) for side in sides)
    body = message[8:]
    begin = 16 + int.from_bytes(body[8:10])
    if model.meters and draw(st.integers(0, 5)) == 0:
        done = m.meter(draw(st.sampled_from(sorted(model.meters))))
        length = struct.pack("!H", begin - 16 + len(done))
        body, begin = body[:8] + length + body[10:16] + done + body[16:], begin + len(done)
    if body[begin + 12 : begin + 14] == _IPV4 and not is_whole:
        body, before = body[:begin] + body[begin + 14 :], before + _WITHOUT_HEADER
    return _DIALECT.message(of.PACKET_OUT, int.from_bytes(message[4:8]), m.with_fields(body, before, after))


def request(draw: Draw, model: Model) -> bytes:
    """Draw a request; not for descriptions of queues, which a dummy device pretends to have."""
    kind = draw(st.integers(0, 9))
    if kind > 3:
        return _DIALECT.translated(requests.request(draw, model))
    if kind == 0:
        return _DIALECT.multipart(model.next_xid(), TABLE_DESC)
    if kind == 1:
        number = draw(st.sampled_from((*pools.PORTS, of.ANY, 7, 0, of.CONTROLLER, 0x10000)))
        return _DIALECT.multipart(model.next_xid(), of.PORT_DESC, struct.pack("!I4x", number))
    if kind == 2:
        number = draw(st.sampled_from((*pools.GROUPS, of.GROUP_ALL, 9, of.ANY)))
        return _DIALECT.multipart(model.next_xid(), of.GROUP_DESC, struct.pack("!I4x", number))
    body = bytes(draw(st.sampled_from((0, 4, 16))))
    return _DIALECT.multipart(model.next_xid(), draw(st.sampled_from((of.PORT_DESC, of.GROUP_DESC))), body)


BUNDLED: tuple[Maker, ...] = (_bundled_packet_out, change_flows, change_flows, *(change_groups,) * 4, *(add_flow,) * 5)
"""See `bundles.BUNDLED`."""
