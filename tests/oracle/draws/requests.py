"""Requests, and changes of the switch and of what a controller is told, of OpenFlow 1.3."""

import struct

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.draws.flows import cookie_filter, filters
from tests.oracle.draws.model import Draw, Model


def request(draw: Draw, model: Model) -> bytes:
    """Draw a request for statistics or configuration."""
    xid = model.next_xid()
    kind = draw(st.integers(0, 11))
    if kind <= 3:
        like = draw(st.sampled_from(model.rules)) if model.rules and draw(st.booleans()) else None
        fields = like.fields if like else draw(pools.match())
        table = draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES, 9)))
        cookie, cookie_mask = cookie_filter(draw, table, pools.COOKIE_MASKS)
        return of.flow_request(
            xid,
            draw(st.sampled_from((of.FLOW, of.AGGREGATE))),
            table=table,
            fields=fields if draw(st.booleans()) else (),
            cookie=cookie,
            cookie_mask=cookie_mask,
            **draw(filters()),
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
