"""Frames that installed rules match, and packet-outs of OpenFlow 1.3."""

from hypothesis import strategies as st

from tests.oracle import frames, pools, rules
from tests.oracle import openflow as of
from tests.oracle.draws import freezing
from tests.oracle.draws.model import Draw, Model

# With what rules push, still within the MTU: a dummy device that drops a frame drops the rest of its batch.
_LONGEST = 1480
# Ports that packet-outs come from.
PACKET_OUT_PORTS = (*pools.PORTS, *pools.PORTS, of.CONTROLLER, of.LOCAL, of.FLOOD, of.ANY, 7, 0, of.IN_PORT)


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


def packet_out(draw: Draw, model: Model) -> bytes:
    """Draw a packet-out."""
    drawn = draw(rules.actions(groups=tuple(model.groups), stateful=model.stateful))
    actions = model.note(freezing.actions(model, 0, drawn))
    in_port = draw(st.sampled_from(PACKET_OUT_PORTS))
    if draw(st.integers(0, 2)) == 0:
        actions += of.output(of.TABLE)
    data, _ = draw(packet(model))
    buffer = draw(st.sampled_from((of.NO_BUFFER,) * 19 + (5,)))
    return of.packet_out(model.next_xid(), in_port, actions, data, buffer)
